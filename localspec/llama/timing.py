"""Measure a context before it is used: threads, and what a pass costs by its width."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.core.processes.activity import doing
from localspec.llama.context import Context
from localspec.llama.heads.dflash import Blocks
from localspec.llama.heads.medusa import Medusa
from localspec.llama.passes import Passes, ordinary_tokens

_WIDTHS = (1, 4, 8, 2, 16, 5, 3, 6, 12, 9, 32, 7, 10, 24, 14, 63, 48)
"""In the order of what is most worth knowing when time runs out."""
_LONG_WIDTHS = (1, 4, 8)
_GLANCE_S = 0.6
_TURNS = 4
_FIRST_TURN = 0.6
"""Share of the budget for first visits; the rest repeats widths that were visited."""
_SETTLED = 1.3
"""Factor by which visits to a width may differ on a machine that computes nothing else."""
_PATIENCE = 2.0
"""Budgets that a sweep takes at most on a machine that does not settle."""
_DRAFT_S = 0.2
"""Most seconds for measuring passes over one token."""
_TRIES = 5
_READ_TOKENS = 16
"""Tokens of the pass that shows what a drafter needs to read one of many."""
_READ_ONCE_S = 0.1
"""Seconds of that pass from which on it is made only once."""
_SHORT = 32
"""Tokens of context before most passes that are measured."""
LONG = 2048
"""Tokens of the context after which some widths are measured again."""
_FASTER_READ = 8.0
"""A token of a prompt costs at least this share of a token in the widest pass of a draft."""


def sweep(
    context: Context, budget_s: float = 1.5, on_pass: Callable[[int, float], None] | None = None
) -> dict[int, float]:
    """Seconds of a pass over n tokens with all logits, after a short context, for as many widths as
    time allows.

    ``on_pass`` is told each width and time as it was measured, and may raise to end it.
    """
    return _measured(context, _WIDTHS, budget_s, on_pass)


def glance(context: Context) -> dict[int, float]:
    """Two or three widths, to see whether the machine is what it was."""
    return _measured(context, _WIDTHS[:3], _GLANCE_S)


def sweep_long(
    context: Context, near: Mapping[int, float], budget_s: float = 0.6
) -> dict[int, float]:
    """A few widths after a context of `LONG` tokens; empty where that is too dear to be read, where
    there is no room for it, or where what was read cannot be forgotten in parts.

    ``near`` is what `sweep` found. Attention over a long context costs several tokens more than one
    where their rows are computed separately, and where a quantized cache is converted for them.
    """
    widest = max(near)
    soonest = near[widest] / widest / _FASTER_READ * LONG
    room = context.capacity - LONG
    if soonest > budget_s or room < min(_LONG_WIDTHS) or context.rollback is not None:
        return {}
    began = time.perf_counter()
    try:
        if not _read(context, ordinary_tokens(context.model, LONG), 2 * budget_s / 3):
            return {}
        passes = Passes(context)
        widths = [n for n in _LONG_WIDTHS if n <= room]
        return least_seconds(passes.seconds, widths, budget_s + began - time.perf_counter())
    finally:
        context.truncate(0, 0)


def compare(contexts: Sequence[Context], budget_s: float) -> list[dict[int, float]]:
    """The least seconds by width of each of several contexts, measured in turns: what other
    programs take meanwhile, they take from all. Of widths that were seen of all within the budget.
    """
    began, longest = time.perf_counter(), 0.0
    room = min(context.capacity for context in contexts)
    widths = [width for width in _WIDTHS if width <= room]
    passes = [Passes(context) for context in contexts]
    least: list[dict[int, float]] = [{} for _ in contexts]
    for share in (_FIRST_TURN, *[1.0] * (_TURNS - 1)):
        for width in list(least[0] or widths):
            start = time.perf_counter()
            if start - began + longest > share * budget_s:
                break
            for seen, timed in zip(least, passes, strict=True):
                seen[width] = min(timed.seconds(width), seen.get(width, math.inf))
            longest = max(longest, time.perf_counter() - start)
    return [_bounded(seen) for seen in least]


def _bounded(least: Mapping[int, float]) -> dict[int, float]:
    """A pass over n tokens cannot cost more than n over one, and none less than one over a single
    token; what says so was disturbed.
    """
    one = min(least.values(), default=0.0)
    return {n: min(seconds, n * one) for n, seconds in least.items()}


def _read(context: Context, tokens: Sequence[int], budget_s: float) -> bool:
    """Read tokens in passes of growing size, unless the next one would exceed the budget."""
    began, done, size = time.perf_counter(), 0, _SHORT
    while done < len(tokens):
        part = tokens[done : done + min(size, context.n_batch)]
        start = time.perf_counter()
        context.forward([(0, part, 0)])
        now = time.perf_counter()
        done += len(part)
        size = 2 * len(part)
        following = min(size, context.n_batch, len(tokens) - done)
        if now - began + (now - start) * following / len(part) > budget_s:
            return done == len(tokens)
    return True


def _measured(
    context: Context,
    widths: Sequence[int],
    budget_s: float,
    on_pass: Callable[[int, float], None] | None = None,
) -> dict[int, float]:
    doing(f"measuring passes of {context.model.path}")
    began = time.perf_counter()
    # A recurrent state could not be taken back to what was read before.
    before = 0 if context.rollback is not None else min(_SHORT, context.capacity // 4)
    try:
        if before:
            context.forward([(0, ordinary_tokens(context.model, before), 0)])
        fitting = [n for n in widths if n <= context.capacity - before]
        left_s = budget_s - (time.perf_counter() - began)
        passes = Passes(context)

        def visit(width: int) -> float:
            seconds = passes.seconds(width)
            if on_pass is not None:
                on_pass(width, seconds)
            return seconds

        return least_seconds(visit, fitting, left_s)
    finally:
        context.truncate(0, 0)


def least_seconds(
    visit: Callable[[int], float], widths: Sequence[int], budget_s: float
) -> dict[int, float]:
    """The least seconds by width of some visits to each, in turns; the first width is 1.

    What other programs take from a machine comes and goes: where the points of a curve were
    disturbed differently, its shape is wrong. So there are more turns, up to twice the budget,
    where visits to the same width differed much.
    """
    began = time.perf_counter()
    least: dict[int, float] = {}

    def turn(until_s: float) -> float:
        """Visit the widths; the largest factor by which one differed from what was known."""
        differed = 1.0
        for width in list(least or widths):
            enough = len(least) >= min(2, len(widths))
            if enough and time.perf_counter() - began > until_s:
                break
            seconds = visit(width)
            known = least.setdefault(width, seconds)
            differed = max(differed, known / seconds, seconds / known)
            least[width] = min(known, seconds)
        return differed

    differed = [turn(share * budget_s) for share in (_FIRST_TURN, *[1.0] * (_TURNS - 1))]
    while max(differed[1 - _TURNS :]) > _SETTLED and len(differed) < 2 * _TURNS:
        differed.append(turn(_PATIENCE * budget_s))
    return _bounded(least)


def token_seconds(context: Context, tries: int = _TRIES) -> float:
    """Median seconds of some passes over one token; ends early where they take long."""
    passes, seconds = Passes(context), list[float]()
    while len(seconds) < tries and (not seconds or sum(seconds) < _DRAFT_S):
        seconds.append(passes.seconds(1))
    return statistics.median(seconds)


class Timed(Protocol):
    """A drafter that computes, and what a drafted token costs it."""

    @property
    def digest(self) -> str:
        """Digests of the files of the weights as they were loaded."""
        ...

    @property
    def layers(self) -> int:
        """Layers on a GPU."""
        ...

    @property
    def threads(self) -> int:
        """Threads that compute it."""
        ...

    def seconds(self) -> float:
        """Measure what a drafted token costs now, in seconds."""
        ...

    def read_seconds(self) -> float | None:
        """Measure what it costs to read one token together with others; None: not known."""
        ...


@dataclass(frozen=True, slots=True)
class TimedContext:
    """A drafter that makes a pass for each token."""

    context: Context

    @property
    def digest(self) -> str:
        """See `Timed`."""
        return self.context.model.digest

    @property
    def layers(self) -> int:
        """See `Timed`."""
        return self.context.model.gpu_layers

    @property
    def threads(self) -> int:
        """See `Timed`."""
        return self.context.threads

    def seconds(self) -> float:
        """See `Timed`."""
        return least_seconds(Passes(self.context).seconds, [1], _DRAFT_S)[1]

    def read_seconds(self) -> float | None:
        """See `Timed`."""
        context, seconds = self.context, list[float]()
        if context.capacity < _READ_TOKENS or context.length(0):
            return None
        tokens = ordinary_tokens(context.model, _READ_TOKENS)
        on_device = context.model.gpu_layers > 0  # the first pass there loads kernels
        while len(seconds) < 3 and (on_device or not seconds or seconds[0] < _READ_ONCE_S):
            began = time.perf_counter()
            context.forward([(0, tokens, 1)])
            seconds.append(time.perf_counter() - began)
            context.truncate(0, 0)
        return min(seconds[on_device:]) / len(tokens)


@dataclass(frozen=True, slots=True)
class TimedBlocks(TimedContext):
    """A DFlash head, which guesses a block of tokens in one pass."""

    context: Blocks

    def seconds(self) -> float:
        """See `Timed`."""
        head, position = self.context, self.context.length(0)
        return _median_seconds(lambda: head.fill(0, position, 1)) / head.depth

    def read_seconds(self) -> float | None:
        """See `Timed`."""
        return None


@dataclass(frozen=True, slots=True)
class TimedMedusa:
    """Medusa heads, all computed at once."""

    heads: Medusa
    width: int
    """Numbers of a hidden state."""
    digest: str
    layers: int
    threads: int

    def seconds(self) -> float:
        """See `Timed`."""
        states, heads = np.zeros((1, self.width), np.float32), self.heads
        return _median_seconds(lambda: heads.guess(states, heads.count)) / heads.count

    def read_seconds(self) -> float | None:
        """See `Timed`: they read nothing."""
        return None


def _median_seconds(compute: Callable[[], object]) -> float:
    """Median seconds of some calls, without the first one."""
    seconds = []
    for _ in range(1 + _TRIES):
        began = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
