"""The number of threads: chosen by measurement, lowered where a busy machine makes them wait."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from localspec.core.events import Notice
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.timing import token_seconds

_SMALL = 300_000_000
"""Bytes of weights that one core reads in a few hundredths of a second."""
_MUST_GAIN = 1.25
"""More threads must be this much faster."""


def choose_threads(context: Context, seconds: Callable[[], float] | None = None) -> int:
    """Set and return the fewest threads that are about as fast as any for one-token passes, or for
    what ``seconds`` times.

    Small models lose more at the barriers between threads than they gain; and next to a busy
    program a spinning barrier can cost a hundred times the work. So more threads must earn
    their place. Large models are not made to crawl on one thread to find that out.
    """
    cores = physical_cores()
    candidates = {(cores + 1) // 2, cores} | ({1} if context.model.n_bytes < _SMALL else set())
    best, best_s = 0, float("inf")
    for n in sorted(candidates):
        context.set_threads(n)
        took = token_seconds(context) if seconds is None else seconds()
        if took * _MUST_GAIN < best_s:
            best, best_s = n, took
    context.set_threads(best)
    return best


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
