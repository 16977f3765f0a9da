"""Measure a context before it is used: threads, and what a pass costs by its width."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.events import Notice
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.medusa import Medusa

_WIDTHS = (1, 4, 8, 2, 16, 5, 3, 6, 12, 9, 32, 7, 10, 24, 14)
"""In the order of what is most worth knowing when time runs out."""
_TURNS = 4
_FIRST_TURN = 0.6
"""Of the time; then those seen already are seen again."""
_DRAFT_S = 0.2
"""For measuring a drafter's passes."""
_SMALL = 300_000_000
"""Bytes of weights that one core reads in a few hundredths of a second."""
_LONG_S = 0.05
"""Seconds of a pass beside which building its graph is nothing."""
_MUST_GAIN = 1.25
"""More threads must be this much faster."""


def choose_threads(context: Context) -> int:
    """Set and return the fewest threads that are about as fast as any for one-token passes.

    Small models lose more at the barriers between threads than they gain; and beside a busy
    neighbour a spinning barrier can cost a hundred times the work. So more threads must earn
    their place. Large models are not made to crawl on one thread to find that out.
    """
    cores = physical_cores()
    candidates = {(cores + 1) // 2, cores} | ({1} if context.model.n_bytes < _SMALL else set())
    best, best_s = 0, float("inf")
    for n in sorted(candidates):
        context.set_threads(n)
        seconds = pass_seconds(context, 1)
        if seconds * _MUST_GAIN < best_s:
            best, best_s = n, seconds
    context.set_threads(best)
    return best


def sweep(context: Context, budget_s: float = 2.0) -> dict[int, float]:
    """Seconds of a pass over n tokens with all logits, for as many widths as time allows."""
    return least_seconds(_visit(context), _WIDTHS, budget_s)


def glance(context: Context, budget_s: float = 0.6) -> dict[int, float]:
    """Two or three widths, to see whether the machine is what it was."""
    return least_seconds(_visit(context), _WIDTHS[:3], budget_s)


def _visit(context: Context) -> Callable[[int], float]:
    return lambda width: pass_seconds(context, width, tries=1, budget_s=0.0)


def least_seconds(
    visit: Callable[[int], float], widths: Sequence[int], budget_s: float
) -> dict[int, float]:
    """The least seconds by width of some visits to each, in turns; the first width is 1.

    What other programs take from a machine comes and goes: where the points of a curve were
    disturbed differently, its shape is wrong. Nor can a pass over n tokens cost more than n over
    one; what says so was disturbed all the same.
    """
    began = time.perf_counter()
    least: dict[int, float] = {}
    for share in (_FIRST_TURN, *[1.0] * (_TURNS - 1)):
        for width in list(least or widths):
            enough = len(least) >= min(2, len(widths))
            if enough and time.perf_counter() - began > share * budget_s:
                break
            least[width] = min(visit(width), least.get(width, math.inf))
    return {n: min(seconds, n * least[1]) for n, seconds in least.items()}


def pass_seconds(context: Context, width: int, tries: int = 5, budget_s: float = 0.2) -> float:
    """Median seconds of some passes over ``width`` tokens appended to sequence 0, then removed.

    A first pass, which builds graphs and starts threads, is not counted; for several tokens it is
    where it takes so long that a graph makes no difference. On a device it never is: there the
    first pass of a width compiles or loads kernels, which can take seconds.
    """
    start = context.length(0)
    seconds: list[float] = []
    for _ in range(1 + tries):
        began = time.perf_counter()
        context.forward([(0, [1] * width, width)])
        seconds.append(time.perf_counter() - began)
        context.truncate(0, start)
        counts_first = width > 1 and seconds[0] > _LONG_S and not context.on_device
        if len(seconds) > (not counts_first) and sum(seconds) > budget_s:
            break
    return statistics.median(seconds if counts_first else seconds[1:])


@dataclass(frozen=True, slots=True)
class Timed:
    """What a drafter computes with, as far as its price goes."""

    path: Path
    """Of its file."""
    threads: int
    seconds: Callable[[], float]
    """Measures what a drafted token costs now."""


def of_context(context: Context) -> Timed:
    """Of a drafter that makes a pass for each token."""

    def seconds() -> float:
        return least_seconds(_visit(context), [1], _DRAFT_S)[1]

    return Timed(context.model.path, context.threads, seconds)


def guess_seconds(heads: Medusa, width: int, tries: int = 5) -> float:
    """Median seconds of all Medusa heads in one computation, for each of the tokens they guess."""
    states, seconds = np.zeros((1, width), np.float32), []
    for _ in range(1 + tries):
        began = time.perf_counter()
        heads.guess(states, heads.count)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:]) / heads.count


class Watchdog:
    """Halves the threads when they wait for a busy neighbour, and takes them back when it is gone.

    llama.cpp's threads meet at spinning barriers: with another process on a core, every pass
    waits for the scheduler and can take a hundred times as long.
    """

    _SLOW = 5.0
    """Times the usual, on average over the last passes."""
    _WEIGHT = 0.1
    _FADE = 1.002
    """The best time of a width is forgotten slowly: passes do get longer with the context."""
    _PATIENCE = (64, 1024)
    """Passes before all threads are tried again: at first, and at most."""
    _TRIAL = 5
    """Passes of a trial."""

    def __init__(self, context: Context, most: int | None = None) -> None:
        """``most`` are the threads worth trying later, where the context was given fewer."""
        self._context = context
        self._usual = max(most or 0, context.threads)
        self._fewer = context.threads
        self._best: dict[int, float] = {}
        self._slowness = 1.0
        self._wait = self._PATIENCE[0]
        self._passes = 0
        """Since the threads were last changed."""
        self._trial: list[float] = []
        """Time of each pass of a running trial, by the best with fewer threads."""

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        """Take note of a pass of (width, seconds); says so when it steps in."""
        width, seconds = last
        self._passes += 1
        if self._context.threads < self._usual:
            self._remember(width, seconds)
            if self._passes >= self._wait:
                self._set(self._usual)
        elif self._fewer < self._usual:
            yield from self._try(width, seconds)
        elif self._context.threads > 1:
            best = self._remember(width, seconds)
            ratio = min(seconds / best, 4 * self._SLOW) if best > 0 else 1.0
            self._slowness += self._WEIGHT * (ratio - self._slowness)
            if self._slowness > self._SLOW:
                self._fewer = self._usual // 2
                self._wait = self._PATIENCE[0]
                self._set(self._fewer)
                yield Notice(f"other programs keep the cores busy: now {self._computing()}")

    def _try(self, width: int, seconds: float) -> Iterator[Notice]:
        """One pass of the trial with all threads; the first one wakes them and does not count."""
        if self._passes > 1 and width in self._best:
            self._trial.append(seconds / self._best[width])
        if len(self._trial) >= self._TRIAL or self._passes > 4 * self._TRIAL:
            if self._trial and statistics.median(self._trial) * _MUST_GAIN < 1:
                self._fewer = self._usual
                self._set(self._usual)
                yield Notice(f"the cores are free again: {self._computing()}")
            else:
                self._wait = min(2 * self._wait, self._PATIENCE[1])
                self._set(self._fewer)

    def _remember(self, width: int, seconds: float) -> float:
        best = min(self._best.get(width, seconds) * self._FADE, seconds)
        self._best[width] = best
        return best

    def _set(self, threads: int) -> None:
        trying = threads == self._usual and self._fewer < self._usual
        self._context.set_threads(threads)
        self._slowness, self._passes, self._trial = 1.0, 0, []
        if not trying:  # a trial is compared with what the fewer did
            self._best.clear()

    def _computing(self) -> str:
        n = self._context.threads
        return f"computing on {n} thread{'s' if n > 1 else ''}"
