"""Measure a context before it is used: threads, and what a pass costs by its width."""

from __future__ import annotations

import time
from collections.abc import Iterator

from localspec.events import Notice
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores

_WIDTHS = (1, 4, 8, 2, 5, 16, 3, 6, 12, 7)
"""In the order of what is most worth knowing when time runs out."""
_TRIES = 3


def choose_threads(context: Context, budget_s: float = 0.5) -> int:
    """Set and return the number of threads that makes a one-token pass fastest.

    Small models lose more at the barriers between threads than they gain; and beside a busy
    neighbour a spinning barrier can cost a hundred times the work.
    """
    deadline = time.perf_counter() + budget_s
    cores = physical_cores()
    candidates = sorted({cores, (cores + 1) // 2, 1}, reverse=True)
    times: dict[int, float] = {}
    for n in candidates:
        if times and time.perf_counter() > deadline:
            break
        context.set_threads(n)
        pass_seconds(context, 1, tries=1)  # first pass with a new thread pool
        times[n] = pass_seconds(context, 1, tries=5)
    best = min(times, key=times.__getitem__)
    context.set_threads(best)
    return best


def sweep(context: Context, budget_s: float = 1.0) -> dict[int, float]:
    """Seconds of a pass over n tokens with all logits, for as many widths as time allows."""
    deadline = time.perf_counter() + budget_s
    measured: dict[int, float] = {}
    for width in _WIDTHS:
        if len(measured) >= 2 and time.perf_counter() > deadline:
            break
        measured[width] = pass_seconds(context, width, tries=_TRIES)
    return measured


def pass_seconds(context: Context, width: int, tries: int) -> float:
    """The fastest of some passes over ``width`` tokens appended to sequence 0, then removed."""
    start = context.length(0)
    best = float("inf")
    for _ in range(tries):
        began = time.perf_counter()
        context.forward([(0, [1] * width, width)])
        best = min(best, time.perf_counter() - began)
        context.truncate(0, start)
    return best


class Watchdog:
    """Steps down to one thread when threads wait for a busy neighbour.

    llama.cpp's threads meet at spinning barriers: with another process on a core, every pass
    waits for the scheduler and can take a hundred times as long.
    """

    _SLOW = 8.0
    _IN_A_ROW = 6

    def __init__(self, context: Context) -> None:
        self._context = context
        self._best: dict[int, float] = {}
        self._slow = 0

    def look(self, last: tuple[int, float]) -> Iterator[Notice]:
        """Take note of a pass of (width, seconds); says so when it steps in."""
        width, seconds = last
        best = self._best[width] = min(self._best.get(width, seconds), seconds)
        self._slow = self._slow + 1 if seconds > self._SLOW * best else 0
        if self._slow >= self._IN_A_ROW and self._context.threads > 1:
            self._context.set_threads(1)
            self._slow = 0
            self._best.clear()
            yield Notice("other programs keep the cores busy: now computing on one thread")
