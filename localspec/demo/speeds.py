"""How fast the model is with and without drafting, measured alternately within one comparison."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.core.events import QUICKEST_PLAIN, Round
from localspec.core.units import size
from localspec.loading.offers import Best

TOKENS = 64
"""Tokens of a timed run: enough for a median, few enough for a slow CPU."""
RUNS = 4
"""Two of each kind, alternating, so that other load on the machine affects both."""
_FEWEST = 16
"""Fewest tokens of a run from which a speed is computed."""
_NOISY = 0.15
"""Difference between equal runs, relative to the slower, above which no factor is given but the
least one that any two of them have.
"""
_SURE = 1.1
"""Such a factor from which drafting is faster, however equal runs differ."""


@dataclass(slots=True)
class TimedRun:
    """Times of the first `TOKENS` tokens of a reply."""

    draft: bool
    emitted: int = 0
    drafted: int = 0
    _seconds: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each round, by the length of its draft."""

    def add(self, done: Round) -> None:
        """Add a round."""
        if self.emitted < TOKENS:
            self.emitted += done.emitted
            self.drafted += done.drafted
            self._seconds[done.drafted].append(done.seconds)

    @property
    def speed(self) -> float:
        """Tokens per second; 0 where nothing was emitted.

        Every round counts with the median time of the rounds of its draft length, so that a hiccup
        of the machine does not count.
        """
        seconds = sum(len(s) * statistics.median(s) for s in self._seconds.values())
        return self.emitted / seconds if seconds > 0 else 0.0


class Speeds:
    """The timed runs of one comparison, plain decoding first."""

    def __init__(self) -> None:
        self.runs: list[TimedRun] = []

    def begin(self) -> TimedRun:
        """The next run; drafting and plain decoding take turns."""
        self.runs.append(TimedRun(draft=len(self.runs) % 2 == 1))
        return self.runs[-1]

    @property
    def complete(self) -> bool:
        """Whether all runs were made."""
        return len(self.runs) >= RUNS

    def of(self, *, draft: bool) -> float:
        """Tokens per second of one kind, the median of its runs so far; 0 while there is none."""
        speeds = self._all(draft)
        return statistics.median(speeds) if speeds else 0.0

    def _all(self, draft: bool) -> Sequence[float]:
        return [run.speed for run in self.runs if run.draft is draft and run.speed > 0]

    @property
    def factor(self) -> float | None:
        """Speed with drafting relative to plain decoding; None while either is unknown."""
        plain, drafted = self.of(draft=False), self.of(draft=True)
        return drafted / plain if plain and drafted else None

    @property
    def not_comparable(self) -> str:
        """Why the speeds of the complete runs say nothing; empty where they do."""
        if any(run.emitted < _FEWEST for run in self.runs):
            return "the reply is too short to compare speeds"
        if not any(run.drafted for run in self.runs if run.draft):
            return "nothing was drafted just now, so there are no speeds to compare"
        if self.of(draft=False) > QUICKEST_PLAIN:
            return "the model is too small and fast to compare speeds"
        if self.noisy:
            return "equal runs differ too much just now to compare speeds"
        return ""

    @property
    def noisy(self) -> bool:
        """Whether equal runs differ so much that they leave open whether drafting is faster."""
        least = self.least_factor
        return self._differ and (least is None or least < _SURE)

    @property
    def least_factor(self) -> float | None:
        """The slowest run with drafting by the quickest without, in whole tenths; None while
        either is unknown.
        """
        plain, drafted = self._all(draft=False), self._all(draft=True)
        return math.floor(10 * min(drafted) / max(plain)) / 10 if plain and drafted else None

    @property
    def _differ(self) -> bool:
        return any(max(s) / min(s) - 1 > _NOISY for s in (self._all(True), self._all(False)) if s)

    def verdict(self) -> str:
        """The result of the complete runs, in a sentence."""
        if why := self.not_comparable:
            return why
        if self._differ:
            return f"with drafting it is at least {self.least_factor:.1f}× as fast"
        factor = self.of(draft=True) / self.of(draft=False)
        if factor < 0.95:
            return f"drafting is slower here: {factor:.1f}× the speed of plain decoding"
        return f"with drafting it is {factor:.1f}× as fast"


def advice(found: Best | None, n_bytes: int, kernels: str) -> str:
    """What ``kernels`` gained, the size of the race's target, ``n_bytes``, and the best pair for
    this machine, in a line.

    Nothing is said of a pair where none is known to fit.
    """
    toy = f"That was a toy of 4 MB, padded with zeros to {size(n_bytes)}."
    return " ".join(filter(None, [kernels, toy, found.sentence if found is not None else ""]))
