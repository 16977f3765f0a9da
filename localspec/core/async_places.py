"""Places for work of an event loop, which callers have in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from localspec.core.in_turn import Places


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """Somebody who waits for a place."""

    caller: str
    begun: asyncio.Future[None]

    @property
    def over(self) -> bool:
        return self.begun.done()


class AsyncPlaces:
    """Places of one asyncio loop; who waits for one is awaited, otherwise as `Places`."""

    def __init__(self, most: int, spare: int = 0) -> None:
        """See `Places`."""
        self._places = Places[_Turn](most, spare)

    @contextlib.asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """A place within the block, once it is the caller's turn."""
        await self.enter(caller)
        try:
            yield
        finally:
            self.leave(caller)

    async def enter(self, caller: str) -> None:
        """Wait for a place, which the caller has until it leaves."""
        turn = _Turn(caller, asyncio.get_running_loop().create_future())
        self._places.add(turn)
        self._begin()
        try:
            await turn.begun
        except asyncio.CancelledError:
            if turn.begun.cancelled():
                self._places.tidy()
            else:  # it was its turn already
                self.leave(caller)
            raise

    def leave(self, caller: str) -> None:
        """Give a place back."""
        self._places.leave(caller)
        self._begin()

    def _begin(self) -> None:
        while (turn := self._places.next()) is not None:
            turn.begun.set_result(None)
