"""A search whose cases are damaged inputs, run in a process with limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from faults.limits import Limited
from faults.runner import Search


@dataclass(frozen=True)
class Case:
    """One input, by the seed of the changes that damage it."""

    search: str
    seed: int
    left_out: tuple[int, ...] = ()
    """Changes that are not made, to find the ones that matter."""


class Mutated(Search):
    """Every damaged input ends in a result or in a documented error of one line."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._process = Limited(name)
        self._changes: dict[Case, int] = {}

    def case(self, seed: int) -> Case:
        return Case(self._name, seed)

    def wrong(self, case: Case) -> str | None:
        what, changes = self._process.run(case.seed, case.left_out)
        if what is None:
            return None
        self._changes[case] = len(changes) + len(case.left_out)
        return f"{what} [{'; '.join(changes)}]" if changes else what

    def smaller(self, case: Case) -> Iterator[Case]:
        number = self._changes.get(case, 0)
        if number - len(case.left_out) > 1:
            for i in range(number):
                if i not in case.left_out:
                    yield replace(case, left_out=(*case.left_out, i))

    def close(self) -> None:
        self._process.close()
