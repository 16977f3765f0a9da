"""Measure a context before it is used: threads, and what a pass costs by its width."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.llama.context import Context
from localspec.llama.heads.medusa import Medusa

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
