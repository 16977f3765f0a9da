"""The engine's way out: a thread that writes events, tokens gathered into batches.

The decode loop only appends to a list, so neither encoding nor a slow reader costs it time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import BinaryIO

from localspec.core.events import Round, Token
from localspec.engine import protocol
from localspec.engine.events import BatchEvent, EngineEvent

INTERVAL = 0.02
"""Seconds between two batches: 50 a second is more than any screen shows."""


class Outbox:
    """Events on their way to the interface, in the order they were put in."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ready = threading.Condition()
        self._events: deque[EngineEvent] = deque()
        self._items: list[Token | Round] = []
        self._items_id = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def send(self, event: EngineEvent) -> None:
        """Send an event now, behind what is waiting."""
        with self._ready:
            self._seal()
            self._events.append(event)
            self._ready.notify()

    def add(self, id: int, item: Token | Round) -> None:  # noqa: A002 - the protocol's field
        """Send a token or round with the next batch."""
        with self._ready:
            if self._items and self._items_id != id:
                self._seal()
            self._items_id = id
            self._items.append(item)
            if len(self._items) == 1:  # otherwise the writer already waits for the batch's time
                self._ready.notify()

    def close(self, timeout: float = 1.0) -> None:
        """Send what is waiting and stop."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout)

    def _seal(self) -> None:
        if self._items:
            self._events.append(BatchEvent(self._items_id, tuple(self._items)))
            self._items = []

    def _run(self) -> None:
        next_batch = 0.0
        while True:
            with self._ready:
                while not (self._events or self._items or self._closed):
                    self._ready.wait()
                delay = next_batch - time.monotonic()
                if delay > 0 and not self._events and not self._closed:
                    self._ready.wait(delay)
                    continue
                self._seal()
                events = list(self._events)
                self._events.clear()
                closed = self._closed
            if any(isinstance(event, BatchEvent) for event in events):
                next_batch = time.monotonic() + INTERVAL
            try:
                for event in events:
                    self._stream.write(protocol.encode(event))
                self._stream.flush()
            except OSError:  # nobody reads any more; the command pipe's end stops the engine
                return
            if closed:
                return
