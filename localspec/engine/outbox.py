"""Writes the engine's messages from a thread of its own; tokens of a reply share messages.

Who makes events only appends to a list, so neither encoding nor a slow client costs time there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import BinaryIO

from localspec.core.events import ReplyEvent, Round, Token
from localspec.engine import protocol
from localspec.engine.events import EngineEvent, ReplyEvents

INTERVAL = 0.02
"""Seconds between two messages with tokens where the client does not choose them."""


class Outbox:
    """Messages on their way to the client. Those of a reply keep their order."""

    def __init__(self, stream: BinaryIO, interval: float = INTERVAL) -> None:
        """``interval`` is the number of seconds between two messages with tokens."""
        self._stream, self._interval = stream, interval
        self._ready = threading.Condition()
        self._messages: deque[EngineEvent] = deque()
        self._waiting: dict[int, list[ReplyEvent]] = {}
        """Tokens and rounds by reply, until the next message with them is due."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def send(self, message: EngineEvent) -> None:
        """Send a message now, after the events that wait."""
        with self._ready:
            self._seal()
            self._messages.append(message)
            self._ready.notify()

    def add(self, id: int, event: ReplyEvent) -> None:  # noqa: A002 - the protocol's field
        """Send an event of a reply: tokens and rounds with the next message for them, others now
        and with all that wait.
        """
        with self._ready:
            first = not self._waiting
            self._waiting.setdefault(id, []).append(event)
            if not isinstance(event, Token | Round):
                self._seal()
                self._ready.notify()
            elif first:  # otherwise the writer already waits for its time
                self._ready.notify()

    def close(self, timeout: float = 1.0) -> None:
        """Send what waits and stop."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout)

    def _seal(self) -> None:
        self._messages += [ReplyEvents(id, tuple(events)) for id, events in self._waiting.items()]  # noqa: A001 - as above
        self._waiting.clear()

    def _run(self) -> None:
        next_time = 0.0
        while True:
            with self._ready:
                while not (self._messages or self._waiting or self._closed):
                    self._ready.wait()
                delay = next_time - time.monotonic()
                if delay > 0 and not self._messages and not self._closed:
                    self._ready.wait(delay)
                    continue
                self._seal()
                messages = list(self._messages)
                self._messages.clear()
                closed = self._closed
            if any(isinstance(message, ReplyEvents) for message in messages):
                next_time = time.monotonic() + self._interval
            try:
                for message in messages:
                    self._stream.write(protocol.encode(message))
                self._stream.flush()
            except OSError:  # the client is gone; the end of the command pipe stops the engine
                return
            if closed:
                return
