"""The events of one reply, between the thread that makes them and the one that reads them."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence

from localspec.core.events import Finished, ReplyEvent
from localspec.core.interrupt import Interrupt

_LOOK_SECONDS = 0.5
"""Longest wait of a reader: some systems act on signals only between two waits."""


class Mailbox:
    """Holds the events of one reply until they are read. It has no limit of its own: a reply is no
    longer than the context.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Sequence[ReplyEvent] | BaseException] = queue.SimpleQueue()

    def put(self, events: Sequence[ReplyEvent]) -> None:
        """Hand over events; the reader wakes once for all of them."""
        if events:
            self._items.put(events)

    def fail(self, error: BaseException) -> None:
        """Hand over the error that ends the reply."""
        self._items.put(error)

    def take(self) -> Sequence[ReplyEvent]:
        """The next events; waits for them.

        Raises:
            BaseException: the error that ended the reply.
        """
        while True:
            try:
                item = self._items.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if isinstance(item, BaseException):
                raise item
            return item


class ReplyStream(Iterator[ReplyEvent]):
    """The events of one reply. It runs whether they are read or not.

    A stream that is closed, or collected as garbage, ends its reply.
    """

    def __init__(self, mailbox: Mailbox, interrupt: Interrupt) -> None:
        self._mailbox = mailbox
        self._interrupt = interrupt
        self._ready: deque[ReplyEvent] = deque()
        self._over = False

    def __next__(self) -> ReplyEvent:
        """The next event; waits for it.

        Raises:
            LocalspecError: why the reply failed.
        """
        if self._over:
            raise StopIteration
        if not self._ready:
            try:
                self._ready.extend(self._mailbox.take())
            except Exception:  # whatever failed, no event follows; Ctrl-C is no failure
                self._over = True
                raise
        event = self._ready.popleft()
        self._over = isinstance(event, Finished)
        return event

    def interrupt(self) -> None:
        """End this reply within about 50 ms, whether it runs or is still to begin; it still ends
        with `Finished`. Callable from any thread.
        """
        self._interrupt.set()

    def close(self) -> None:
        """Stop reading: the reply ends, what was emitted is kept in the KV cache, no `Finished`
        comes.
        """
        if not self._over:
            self._over = True
            self._interrupt.set()

    def __del__(self) -> None:
        """Nobody can read it any more."""
        self.close()
