"""The events of one reply on their way from the engine's pipe to the one who asked."""

from __future__ import annotations

import asyncio
from collections import deque

from localspec.engine.events import EngineEvent
from localspec.errors import EngineError

_WAITING_MESSAGES = 256


class Inbox:
    """Holds few of them: who does not take them holds the engine's pipe back."""

    def __init__(self) -> None:
        self._events: deque[EngineEvent | EngineError] = deque()
        self._changed = asyncio.Event()
        self._left = False

    async def get(self) -> EngineEvent | EngineError:
        while not self._events:
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()
        return self._events.popleft()

    async def put(self, event: EngineEvent) -> None:
        while len(self._events) >= _WAITING_MESSAGES and not self._left:
            self._changed.clear()
            await self._changed.wait()
        if not self._left:
            self._events.append(event)
            self._changed.set()

    def fail(self, error: EngineError) -> None:
        """Put the last event, room or no room."""
        self._events.append(error)
        self._left = True
        self._changed.set()

    def leave(self) -> None:
        """Nobody will get any more."""
        self._left = True
        self._changed.set()
