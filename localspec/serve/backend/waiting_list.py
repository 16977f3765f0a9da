"""Requests that wait for the engine, in the order in which they came, each for one model or for
whichever is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from localspec.core.options import Options


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One request."""

    options: Options | None
    """Options of the model that it needs; None: any."""
    turn: asyncio.Future[None]

    def takes(self, options: Options) -> bool:
        """Whether the engine of these options answers it."""
        return self.options is None or self.options.model == options.model


class WaitingList:
    """The requests that wait."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    @property
    def first(self) -> Waiting:
        """The one that has waited longest."""
        return self._waiting[0]

    def join(self, options: Options | None) -> Waiting:
        """Add a request at the end."""
        one = Waiting(options, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        return one

    def leave(self, one: Waiting) -> None:
        """Remove a request that waits no longer, if it is still there."""
        if one in self._waiting:
            self._waiting.remove(one)

    def count(self, options: Options) -> int:
        """How many would be answered by the engine of these options."""
        return sum(one.takes(options) for one in self._waiting)

    def admit_first(self, options: Options) -> int:
        """Give their turn to those at the front which the engine of ``options`` answers, up to the
        first one that it does not; how many they are.
        """
        n = 0
        while self._waiting and self._waiting[0].takes(options):
            n += _admit(self._waiting.pop(0))
        return n

    def admit_all(self, options: Options) -> int:
        """Give their turn to all that the engine of ``options`` answers; how many they are."""
        return sum(_admit(one) for one in [*self._taken(options)])

    def refuse(self, options: Options, error: Exception) -> None:
        """Fail those that ask for the model of ``options``, which cannot be loaded."""
        for one in [*self._taken(options, named=True)]:
            if not one.turn.done():
                one.turn.set_exception(error)

    def _taken(self, options: Options, *, named: bool = False) -> Iterator[Waiting]:
        """Remove those that the engine of ``options`` answers."""
        before, self._waiting = self._waiting, []
        for one in before:
            if one.takes(options) and not (named and one.options is None):
                yield one
            else:
                self._waiting.append(one)


def _admit(one: Waiting) -> int:
    """Give a request its turn; 0 if it has been cancelled and is about to leave, else 1."""
    if one.turn.done():
        return 0
    one.turn.set_result(None)
    return 1
