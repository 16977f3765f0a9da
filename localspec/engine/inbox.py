"""The events of one reply on their way from the engine's pipe to the one who asked."""

from __future__ import annotations

import asyncio
from collections import deque

from localspec.engine.events import EngineEvent
from localspec.errors import EngineError


class Inbox:
    """Holds as many as come: a slow reader must not hold back the pipe, which carries the events of
    others too. A reply is no longer than the context.
    """

    def __init__(self) -> None:
        self._events: deque[EngineEvent | EngineError] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    async def get(self) -> EngineEvent | EngineError:
        """The next one; waits for it."""
        while not self._events:
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()

    def put(self, event: EngineEvent) -> None:
        """Add one, unless the reader has left."""
        if not self._closed:
            self._events.append(event)
            self._changed.set()

    def fail(self, error: EngineError) -> None:
        """Put the last one."""
        if not self._closed:
            self._events.append(error)
            self.leave()

    def leave(self) -> None:
        """Nobody will get any more."""
        self._closed = True
        self._changed.set()
