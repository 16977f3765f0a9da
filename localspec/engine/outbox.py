"""Writes the engine's messages from a thread of its own; tokens of a reply share messages.

Who makes events only appends to a list, so neither encoding nor a slow client costs time there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import BinaryIO

from localspec.core.errors import DefectError
from localspec.core.events import Finished, Reading, ReplyEvent, ReplyFormat, Round, Token
from localspec.engine import protocol
from localspec.engine.messages import EngineEvent, FailedEvent, ReplyEvents

log = logging.getLogger("localspec.engine")
INTERVAL = 1 / 30
"""Seconds between two messages with tokens where the client does not choose them. Each message
costs the client a wake-up, in time that decoding on the same processor lacks; text that grows 30
times a second reads as steady."""


class Batches:
    """Messages that wait to be written, and when they are due. Those of a reply keep their order.

    Tokens and rounds are due an interval after the last ones were taken. The first token of a
    reply and everything else are due at once, with all that wait; only tokens and rounds start an
    interval. The format of a reply and the progress of its prompt wait for that first token, for
    `INTERVAL` at most: messages less for a short reply. Times are those of any monotonic clock, in
    seconds.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._messages: deque[EngineEvent] = deque()
        self._waiting: dict[int, list[ReplyEvent]] = {}
        """Events by reply, until the next message with them is due."""
        self._begun: set[int] = set()
        """Replies whose first token has come, and which have not ended."""
        self.urgent = False
        """Whether something is due at once."""
        self._paced = False
        """Whether tokens or rounds were added since the last ones were taken."""
        self._next_time = 0.0
        self._patient_since: float | None = None
        """When it was first seen that nothing waits but what can wait for a first token."""

    def send(self, message: EngineEvent) -> None:
        """Add a message, after the events that wait."""
        self._seal()
        self._messages.append(message)
        self.urgent = True
        if isinstance(message, FailedEvent) and message.id is not None:
            self._begun.discard(message.id)

    def add(self, id: int, event: ReplyEvent) -> None:  # noqa: A002 - the protocol's field
        """Add an event of a reply."""
        self._waiting.setdefault(id, []).append(event)
        if isinstance(event, Token | Round):
            self._paced = True
            if id not in self._begun:
                self._begun.add(id)
                self.urgent = True
        elif not isinstance(event, ReplyFormat | Reading):
            self.urgent = True
            if isinstance(event, Finished):
                self._begun.discard(id)

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._waiting or self._messages)

    def pause(self, now: float) -> float:
        """Seconds until what waits is due, or until the interval is over where nothing waits."""
        if self.urgent:
            return 0.0
        if self._paced or self.empty:
            return max(0.0, self._next_time - now)
        if self._patient_since is None:
            self._patient_since = now
        return max(0.0, self._patient_since + min(self._interval, INTERVAL) - now)

    def take(self, now: float) -> list[EngineEvent]:
        """All messages, due or not."""
        if self._paced:
            self._next_time = now + self._interval
        self._seal()
        messages = list(self._messages)
        self._messages.clear()
        self.urgent = self._paced = False
        self._patient_since = None
        return messages

    def _seal(self) -> None:
        self._messages += [ReplyEvents(id, tuple(events)) for id, events in self._waiting.items()]  # noqa: A001 - as above
        self._waiting.clear()


def _line(message: EngineEvent) -> bytes:
    """The line of a message; where it cannot be written, that of an error to whoever waits for it,
    so that no other reply ends with it.
    """
    try:
        return protocol.sendable(message)
    except (ValueError, TypeError, MemoryError) as error:
        if (asked := getattr(message, "id", None)) is None:
            raise
        log.exception("a message cannot be written")
        failure = DefectError(f"the answer cannot be sent: {str(error) or type(error).__name__}")
        return protocol.sendable(FailedEvent.of(asked, failure))


class Outbox:
    """Messages on their way to the client, written when `Batches` says so."""

    def __init__(self, stream: BinaryIO, interval: float = INTERVAL) -> None:
        """``interval`` is the number of seconds between two messages with tokens."""
        self._stream = stream
        self._ready = threading.Condition()
        self._batches = Batches(interval)
        self._idle = False
        """Whether the writer waits without an end; else it looks by itself when the time comes."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def send(self, message: EngineEvent) -> None:
        """Send a message now, after the events that wait."""
        with self._ready:
            self._batches.send(message)
            self._ready.notify()

    def add(self, id: int, event: ReplyEvent) -> None:  # noqa: A002 - the protocol's field
        """Send an event of a reply."""
        with self._ready:
            self._batches.add(id, event)
            if self._idle or self._batches.urgent:
                self._ready.notify()

    def close(self, timeout: float = 1.0) -> None:
        """Send what waits and stop."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError:  # the client is gone; the end of the command pipe stops the engine
            return
        except BaseException:
            # Without its writer the engine would answer nobody; one that has ended is started anew.
            log.exception("the writer of messages failed")
            os._exit(1)

    def _write_all(self) -> None:
        while True:
            with self._ready:
                self._wait()
                messages = self._batches.take(time.monotonic())
                closed = self._closed
            self._stream.write(b"".join(map(_line, messages)))
            self._stream.flush()
            if closed:
                return

    def _wait(self) -> None:
        """Wait until messages are due."""
        while not self._closed:
            pause = self._batches.pause(time.monotonic())
            if pause > 0:
                self._ready.wait(pause)
            elif not self._batches.empty:
                return
            else:
                self._idle = True
                self._ready.wait()
                self._idle = False
