"""The seconds of passes and drafts on this machine: a measured curve, updated while it is used.

The curve t(n), seconds of a target pass over n tokens, has real steps (on AVX-512 a Q4_0 pass over
four tokens is cheaper than one over three), so it is a table and no fit. Every pass is a
measurement. Its time is separated into four parts (`localspec.policy.cost_filter`), or a machine
that became slower would be mistaken for speculation that became worse:

    log t(n) = base(n) + offset(n) + slowness + [n > 1] steepness

`base` is the sweep at load, or what an earlier session saved; `offset` belongs to one width or one
drafter. `slowness` is common to all, drafts too: another program on the cores, a longer context.
`steepness` is common to passes over several tokens: one waits for memory, several for arithmetic,
which may halve when a neighbour shares the cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from localspec.policy.cost_filter import FARTHER, LEAP, NEAR, WEIGHT, CostFilter, PassKind

SETTLE = 2
"""First passes of a width in this process that may be slow, since graphs are being built."""
WIDTHS = 48
"""Widths with offsets of their own: what an observation takes grows with the square. Those of many
requests with drafts of all lengths are hundreds; further ones count as the nearest of these."""
FIRST_ANSWER = 1e-4
"""Most seconds that count of the first answer of a drafter that copies: it may include the time for
indexing a long text."""
_TABLE = 64
"""Widths from 1 to this one whose seconds are computed together."""
_LEAST = 1e-9
"""Seconds that anything lasts."""
_STEEPEST = 1.5
"""Passes over one token that one over n may last, for each of the n."""


def plausible(sweep: Mapping[int, float]) -> dict[int, float]:
    """The times without those that only a disturbed sweep finds: none is less than that of one
    token, or much more than that of its tokens one by one.
    """
    if 1 not in sweep:
        return dict(sorted(sweep.items()))
    one = min(sweep.values())
    return {n: min(s, _STEEPEST * n * one) if n > 1 else one for n, s in sorted(sweep.items())}


def _between(curve: Mapping[int, float], widths: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """The times of these widths on a curve; beyond its widest, in proportion."""
    known = list(curve)
    found = np.interp(widths, known, list(curve.values()))
    return np.asarray(found * np.maximum(1.0, np.asarray(widths) / known[-1]))


class Costs:
    """Seconds of target passes by width, and of drafted tokens by drafter."""

    def __init__(
        self, sweep: Mapping[int, float], drafts: Mapping[str, float] | None = None
    ) -> None:
        """``sweep`` maps a number of tokens to seconds; ``drafts`` a drafter to seconds per token.

        Raises:
            ValueError: the sweep is empty, or a time is not positive and finite.
        """
        if not sweep or not all(n > 0 and 0 < s < math.inf for n, s in sweep.items()):
            raise ValueError("a sweep needs at least one positive time")
        self._filter = CostFilter()
        self._now: dict[int, float] = {}
        self._known: dict[int, float] = {}
        """Since the last observation: what `pass_seconds` and `curve` said."""
        self._base: dict[int, float] = {}
        self._drafts: dict[str, float] = {}
        self._answers: dict[str, float] = {}
        """Drafter that copies -> seconds of an answer, which no slowness of passes changes."""
        self._states: dict[int | str, int] = {}
        """Width or drafter -> its offset in the filter."""
        self._sweep = plausible(sweep)
        for n, seconds in self._sweep.items():
            self._know(n, seconds)
        for source, seconds in (drafts or {}).items():
            self._know_draft(source, seconds)
        self._waiting: list[float] = []
        """Logarithms of plain passes that were as expected, over what was measured before."""
        self._seen: dict[int, int] = {}
        """Width -> passes in this process."""
        self.stale = False
        """Whether a pass over several tokens was quicker than a plain one is believed to be, and no
        plain one was seen since."""

    def _know(self, width: int, seconds: float) -> None:
        self._base[width] = seconds
        self._known.clear()
        self._states[width] = self._filter.add()

    def _know_draft(self, source: str, seconds: float) -> None:
        self._drafts[source] = max(seconds, _LEAST)
        self._states[source] = self._filter.add(draft=True)

    def pass_seconds(self, width: int) -> float:
        """Expected seconds of a pass over ``width`` tokens now."""
        if not 1 <= width <= _TABLE:
            return float(self.passes_seconds(width))
        if not self._now:  # a round asks for many: all at once take as long as one
            self._now = dict(enumerate(self.passes_seconds(np.arange(1, _TABLE + 1)).tolist(), 1))
        return self._now[width]

    def passes_seconds(self, widths: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """`pass_seconds` of each of these widths, at once."""
        return math.exp(self._slowness) * self._quiet(widths)

    @property
    def _slowness(self) -> float:
        return self._filter[CostFilter.SLOWNESS]

    def _quiet(self, widths: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds of passes without the current slowness."""
        return _between(self.curve(), widths)

    def curve(self) -> dict[int, float]:
        """Seconds by width, with all offsets, without the current slowness: what is saved."""
        if not self._known:
            offsets, steep = self._filter, math.exp(self._filter[CostFilter.STEEPNESS])
            own = {n: s * math.exp(offsets[self._states[n]]) for n, s in self._base.items()}
            one = own.get(1, 0.0)
            for n in sorted(own):
                several = one > 0 and n > 1
                steeper = min(max(own[n] * steep, one), _STEEPEST * n * one)
                self._known[n] = steeper if several else own[n]
        return dict(self._known)

    def token_seconds(self, source: str) -> float:
        """Expected seconds per token of that drafter; 0 where none was measured."""
        if source in self._answers:
            return self._answers[source]
        if source not in self._drafts:
            return 0.0
        return self._drafts[source] * math.exp(self._filter[self._states[source]] + self._slowness)

    @property
    def confirmed(self) -> bool:
        """Whether some passes over several tokens were seen in this process."""
        return sum(self._seen.values()) - self._seen.get(1, 0) >= NEAR

    def doubt(self, width: int) -> float:
        """Standard deviation of the logarithm of what so wide a pass costs in plain passes."""
        nearest = min(self._base, key=lambda n: abs(math.log(n / width)))
        one = min(self._base)
        return self._filter.deviation(self._parts(nearest), self._parts(one))

    def measured_share(self, requests: int = 1) -> float:
        """What was measured of the extra time of passes over four tokens of each of so many
        requests, as a share of that believed now; 1 at most.
        """
        width = 4 * requests
        one, wide = _between(self._sweep, np.array([requests, width]))
        extra = self.pass_seconds(width) / self.pass_seconds(requests) - 1
        return min(1.0, float(wide / one - 1) / extra) if extra > 0 else 1.0

    def draft_doubt(self, source: str) -> float:
        """Standard deviation of the logarithm of what a drafted token costs in plain passes; 0
        where none was measured.
        """
        if source in self._answers or source not in self._drafts:
            return 0.0
        return self._filter.deviation(self._parts(source), self._parts(min(self._base)))

    def _parts(self, of: int | str) -> list[int]:
        """What the logarithm of a time is the sum of: by width, or by drafter."""
        steep = isinstance(of, int) and of > 1
        return [CostFilter.SLOWNESS, *[CostFilter.STEEPNESS] * steep, self._states[of]]

    def record_pass(self, width: int, seconds: float) -> None:
        """Record a pass over ``width`` tokens."""
        if seconds <= 0:
            return
        if width not in self._base and len(self._base) >= WIDTHS:
            nearest = min(self._base, key=lambda n: abs(math.log(n / width)))
            width, seconds = (
                nearest,
                seconds * self.pass_seconds(nearest) / self.pass_seconds(width),
            )
        if width not in self._base:
            several = math.exp(self._filter[CostFilter.STEEPNESS] * (width > 1))
            self._know(width, float(self._quiet(width)) / several)
        count = self._seen.get(width, 0)
        self._seen[width] = count + 1
        settling = count < SETTLE and len(self._seen) > 1
        if settling and seconds > self.pass_seconds(width):
            return
        longer = math.log(seconds / self._base[width])
        if width > 1:
            self._observe(PassKind.SEVERAL, self._parts(width), longer)
            if seconds < math.exp(-self._filter.far(PassKind.SEVERAL)) * self.pass_seconds(1):
                self.stale = True
            return
        # Plain passes are many, and a round of them must cost next to nothing: those that take as
        # long as expected count together.
        self._waiting.append(longer)
        usual = not self.stale and abs(math.log(seconds / self.pass_seconds(1))) < FARTHER
        self.stale = False
        if not usual or len(self._waiting) >= NEAR:
            self._observe_waiting()

    def _observe_waiting(self) -> None:
        if self._waiting:
            *usual, last = self._waiting
            if usual:
                mean = sum(usual) / len(usual)
                self._filter.observe(PassKind.ONE, self._parts(1), mean, len(usual))
            self._filter.observe(PassKind.ONE, self._parts(1), last)
            self._waiting.clear()
        self._now.clear()
        self._known.clear()

    def _observe(self, kind: PassKind, parts: list[int], longer: float) -> None:
        self._observe_waiting()
        self._filter.observe(kind, parts, longer)

    def record_draft(self, source: str, tokens: float, seconds: float) -> None:
        """Record that a drafter computed drafts of ``tokens`` tokens of one request."""
        each = max(seconds / tokens, _LEAST)
        if source not in self._drafts:
            self._know_draft(source, each / math.exp(self._slowness))
            return
        self._observe(PassKind.DRAFT, self._parts(source), math.log(each / self._drafts[source]))

    def record_draft_at_most(self, source: str, seconds: float) -> None:
        """Record an upper bound of a drafted token's cost: the time also covered reading."""
        if seconds < self.token_seconds(source) and source not in self._answers:
            self.record_draft(source, 1, seconds)

    def record_answer(self, source: str, seconds: float, *, looks: bool = False) -> None:
        """Record an answer of a drafter that copies from the text. Where it was asked only to see
        what it takes, a quicker one is believed at once: few others will follow to correct it.
        """
        known = self._answers.get(source) or self._drafts.get(source)
        before = known or min(seconds, FIRST_ANSWER)
        if looks and seconds < before:
            self._answers[source] = max(seconds, _LEAST)
            return
        surprise = math.log(max(seconds, _LEAST) / max(before, _LEAST))
        step = WEIGHT * max(-LEAP, min(LEAP, surprise))
        self._answers[source] = max(before, _LEAST) * math.exp(step)

    def copy(self) -> Costs:
        """Costs for another use that begin with all that is known here: what is believed, what was
        measured before it was, and how uncertain it is. What is only believed must not begin as
        measured: nothing would look at it again.
        """
        return deepcopy(self)

    def renewed(self, seen: Mapping[int, float], drafts: Mapping[str, float]) -> Costs:
        """The curve of today: ``seen`` are seconds of some widths, the others move with them."""
        widths = sorted(seen)
        moved = [math.log(seen[n] / float(self._quiet(n))) for n in widths]
        where = [math.log(n) for n in widths]
        curve = {
            n: seconds * math.exp(float(np.interp(math.log(n), where, moved)))
            for n, seconds in self.curve().items()
        }
        return Costs(curve | dict(seen), self.token_seconds_by_drafter() | dict(drafts))

    def token_seconds_by_drafter(self) -> dict[str, float]:
        """Seconds per token by drafter, for saving."""
        own = {s: math.exp(self._filter[self._states[s]]) for s in self._drafts}
        return {s: seconds * own[s] for s, seconds in self._drafts.items()} | self._answers
