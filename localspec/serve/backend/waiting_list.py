"""Requests that wait for an engine, in the order in which they came, each for one model or for
whichever is present.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from localspec.core.options import Options
from localspec.serve.backend.engine_slot import EngineSlot


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One request."""

    options: Options | None
    """Options of the model that it needs; None: any."""
    beside: bool
    """Whether its model may be loaded beside the others."""
    turn: asyncio.Future[EngineSlot]
    """The slot that it was given."""

    def takes(self, options: Options) -> bool:
        """Whether the engine of these options answers it."""
        return self.options is None or self.options.model == options.model


class WaitingList:
    """The requests that wait."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __iter__(self) -> Iterator[Waiting]:
        """The requests that wait, as long as they do; not those that were cancelled and are about
        to leave.
        """
        return (one for one in [*self._waiting] if not one.turn.done())

    def join(self, options: Options | None, *, beside: bool) -> Waiting:
        """Add a request at the end."""
        one = Waiting(options, beside, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        return one

    def leave(self, one: Waiting) -> None:
        """Remove a request that waits no longer, if it is still there."""
        if one in self._waiting:
            self._waiting.remove(one)

    @property
    def beside(self) -> list[Options]:
        """Options of the models that are waited for, and may be loaded beside the others."""
        return [one.options for one in self if one.options is not None and one.beside]

    def of(self, options: Options) -> list[Waiting]:
        """Those that wait for one model, and no other."""
        return [one for one in self if one.options is not None and one.takes(options)]

    def count(self, options: Options) -> int:
        """How many would be answered by the engine of these options."""
        return sum(one.takes(options) for one in self)

    def admit(self, one: Waiting, slot: EngineSlot) -> None:
        """Give a request its turn."""
        self._waiting.remove(one)
        slot.enter()
        one.turn.set_result(slot)
