"""Runs searches in turn, keeps their seeds, and makes what they find small."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TURN_S = 20.0
"""Seconds of one search before the next has its turn."""
_SMALLER = 60
"""Most cases that are tried to make one smaller,"""
_SMALLER_S = 30.0
"""and most seconds."""
_TOLD = 10
"""Most faults of one search that are made small and printed; all are counted."""


class Search(ABC):
    """One kind of search."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` is for files of the search; most have none."""
        return

    @abstractmethod
    def case(self, seed: int) -> Any:
        """The case of this seed: a frozen dataclass, which prints as what it is."""

    @abstractmethod
    def wrong(self, case: Any) -> str | None:
        """The fault of a case in one line; None where all is well. An exception is a fault too."""

    def smaller(self, case: Any) -> Iterator[Any]:
        """Cases that are a little smaller."""
        yield from ()

    def figures(self) -> Iterator[str]:
        """Lines with measurements."""
        yield from ()

    def close(self) -> None:
        """Free what was loaded."""
        return


@dataclass(frozen=True)
class Fault:
    """A fault that a search found."""

    search: str
    seed: int
    what: str
    case: Any
    """The smallest that still shows it."""


class Seeds:
    """The next seed of each search, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next: dict[str, int] = {}
        if path.exists():
            self._next = {str(k): int(v) for k, v in json.loads(path.read_text("utf-8")).items()}

    def take(self, name: str) -> int:
        """A seed that nobody had before."""
        seed = self._next.get(name, 0)
        self._next[name] = seed + 1
        return seed

    def keep(self) -> None:
        """Write them down."""
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._next), "utf-8")
        part.replace(self._path)


class Runner:
    """Runs cases and collects faults."""

    def __init__(self, searches: Mapping[str, Search], tell: Callable[[str], object]) -> None:
        self._searches = dict(searches)
        self._tell = tell
        self._counts = dict.fromkeys(searches, 0)
        self.faults: list[Fault] = []

    def run(self, seconds: float, seeds: Seeds) -> None:
        """All searches in turn until the time is over."""
        end = time.monotonic() + seconds
        turn = min(_TURN_S, seconds / len(self._searches))
        while time.monotonic() < end:
            for name in self._searches:
                stop = min(end, time.monotonic() + turn)
                first = seeds.take(name)
                self.one(name, first)
                while time.monotonic() < stop:
                    self.one(name, seeds.take(name))
                seeds.keep()

    def one(self, name: str, seed: int) -> None:
        """The case of one seed."""
        search = self._searches[name]
        case = search.case(seed)
        what = _wrong(search, case)
        self._counts[name] += 1
        if what is None:
            return
        fault = Fault(name, seed, what, case)
        if sum(other.search == name for other in self.faults) < _TOLD:
            fault = self._smallest(search, fault)
        self.faults.append(fault)
        if sum(other.search == name for other in self.faults) > _TOLD:
            return
        self._tell(f"{name} --seed {seed}: {fault.what}\n  {fault.case}")

    def summary(self) -> Iterator[str]:
        """How many cases there were, and what they showed."""
        for name, count in self._counts.items():
            found = sum(fault.search == name for fault in self.faults)
            yield f"{name}: {count} cases, {found} faults"
            yield from (f"  {line}" for line in self._searches[name].figures())

    def _smallest(self, search: Search, fault: Fault) -> Fault:
        tried, going, end = 0, True, time.monotonic() + _SMALLER_S
        while going and tried < _SMALLER and time.monotonic() < end:
            going = False
            for case in search.smaller(fault.case):
                tried += 1
                what = _wrong(search, case)
                if what is not None:
                    fault, going = Fault(fault.search, fault.seed, what, case), True
                    break
                if tried >= _SMALLER or time.monotonic() > end:
                    break
        return fault


def _wrong(search: Search, case: Any) -> str | None:
    try:
        return search.wrong(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        return f"{type(error).__name__}: {error}"
