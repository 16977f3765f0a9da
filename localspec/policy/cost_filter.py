"""A Kalman filter over what passes take beyond what was measured, in logarithms.

A surprise of one pass has several possible causes (see `localspec.policy.costs`). The filter keeps
how uncertain each is and how they go together, so every pass corrects the likely ones, and a later
pass of another kind settles what the first one left open (Kalman 1960). Three things are added:

- A pass that lasted much longer than expected may have been interrupted: it counts once another
  one was as slow. A pass that was much quicker is proof, and counts at once.
- What counts although it is far off shows that something has changed: the causes that could have
  changed become uncertain, so few passes correct even a curve that is wrong by a factor of fifty.
- What the offsets of plain passes and of drafts have in common becomes slowness: while only these
  are seen, a neighbour that comes and goes could drive one up and the other down without end.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np


class PassKind(Enum):
    """Kinds of computations, which a machine may slow down differently."""

    ONE = "pass over one token"
    SEVERAL = "pass over several"
    DRAFT = "drafted token"


OFFSET = 0.1
"""Standard deviation of what was measured at load; like all here, of a logarithm."""
DRIFT = 0.01
"""What slowness and steepness drift by with each observation, and offsets by a third of it."""
MOST = 0.3
"""Largest deviation that drift makes of steepness and of an offset."""
NOISE = 0.02
"""Least deviation of an observation."""
WEIGHT = 0.1
"""Weight of a new observation in an average: of the noise, of answers."""
FAR, FARTHER = 3.0, 0.25
"""Standard deviations, and the least logarithm, from which on an observation is far off."""
LEAP = 0.8
"""Largest logarithm by which one observation may lengthen a time that was as expected before, and
that offsets may have in common: a neighbour on the cores doubles a time, interruptions do more."""
NEAR = 8
"""Observations within which another kind says that the machine as a whole is as expected."""
_STEEPER_IF_ALL, _STEEPER_IF_ALONE = 0.1, 0.9
"""Share of a surprise's square that steepness may explain, if passes over several tokens are slow:
where all may have changed, and where other kinds are as expected."""
_OFFSET_IF_ALL, _OFFSET_IF_ALONE = 0.02, 0.2
"""The same of the offset of a width; that of another kind explains all, where it is alone."""


class CostFilter:
    """Estimates slowness, steepness and offsets from sums of them."""

    SLOWNESS, STEEPNESS = 0, 1

    def __init__(self) -> None:
        self._x = np.zeros(2)
        self._p = np.diag([1.0, OFFSET**2])
        self._drifts = np.array([DRIFT**2, DRIFT**2])
        """Variance that each part gains with an observation, while it has less than `_most`."""
        self._most = np.array([math.inf, MOST**2])
        self._noise = dict.fromkeys(PassKind, NOISE**2)
        self._drafts: list[int] = []
        """Offsets of drafts, which may have been measured at another time than passes."""
        self._made = 0
        self._as_expected: dict[PassKind, int] = {}
        """PassKind -> number of the last observation of it that was not far off."""
        self._latest: dict[PassKind, int] = {}
        """`PassKind.ONE` and `PassKind.DRAFT` -> the offset of the last observation."""
        self._doubts: dict[int, float] = {}
        """Index of an offset -> how far off its last observation was, if it did not count."""

    def add(self, *, draft: bool = False) -> int:
        """Another offset; its index."""
        n = len(self._x)
        self._x = np.append(self._x, 0.0)
        self._drifts = np.append(self._drifts, (DRIFT / 3) ** 2)
        self._most = np.append(self._most, MOST**2)
        self._p = np.pad(self._p, (0, 1))
        self._p[n, n] = OFFSET**2
        if draft:
            self._drafts.append(n)
        return n

    def __getitem__(self, index: int) -> float:
        """The estimate of one part."""
        return float(self._x[index])

    def deviation(self, plus: list[int], minus: list[int]) -> float:
        """Standard deviation of the sum of some parts less that of others."""
        c = np.zeros(len(self._x))
        np.add.at(c, plus, 1.0)
        np.add.at(c, minus, -1.0)
        return math.sqrt(max(0.0, float(c @ self._p @ c)))

    def far(self, kind: PassKind) -> float:
        """Logarithm from which on one observation differs by more than this kind's noise."""
        return max(FAR * math.sqrt(self._noise[kind]), FARTHER)

    def observe(self, kind: PassKind, parts: list[int], seen: float, count: int = 1) -> None:
        """``seen``, or the mean of so many: the logarithm of a time over what was measured."""
        self._made += count
        variances = np.einsum("ii->i", self._p)  # a view that can be written to
        variances += (variances < self._most) * (count * self._drifts)
        surprise = seen - float(self._x[parts].sum())
        together = self._p[:, parts].sum(axis=1)
        expected = float(together[parts].sum())
        noise = self._noise[kind] / count
        variance = expected + noise
        limit = max(FAR * math.sqrt(variance), FARTHER)
        self._adapt(kind, surprise, variance)
        far = abs(surprise) > limit
        if far:
            if surprise > 0:
                before = self._doubts.get(parts[-1])
                self._doubts[parts[-1]] = surprise
                if before is None:
                    return
                surprise = min(surprise, before, LEAP if kind in self._as_expected else math.inf)
            self._open(kind, parts, surprise)
            together = self._p[:, parts].sum(axis=1)
            variance = float(together[parts].sum()) + noise
        else:
            self._doubts.pop(parts[-1], None)
            self._as_expected[kind] = self._made
        gain = together / variance
        self._x += gain * surprise
        self._p -= np.outer(gain, together)
        more = (float(gain[0]) * surprise) ** 2  # steepness may have changed as much
        self._p[1, 1] += more
        if kind is PassKind.SEVERAL:  # the sum of both was seen, only not what each has of it
            self._p[:2, :2] += [[more, -more], [-more, 0.0]]
            # Two that were slow may both have been interrupted.
            if far and surprise > 0 and gain[1] > gain[0]:
                self._p[1, 1] += (surprise / 2) ** 2
        else:
            self._latest[kind] = parts[-1]
            self._share()

    def _share(self) -> None:
        """What the offsets of plain passes and of drafts have in common becomes slowness."""
        if len(self._latest) < 2:
            return
        both = list(self._latest.values())
        least, most = sorted(float(self._x[i]) for i in both)
        common = max(least, 0.0) + min(most, 0.0)
        if abs(common) > LEAP:
            self._x[both] -= common
            self._x[self.SLOWNESS] += common

    def _adapt(self, kind: PassKind, surprise: float, variance: float) -> None:
        """Adapt the noise to the size of surprises relative to their expected variance."""
        noise = self._noise[kind] * (1 + WEIGHT * (min(surprise**2 / variance, FAR**2) - 1))
        self._noise[kind] = max(noise, NOISE**2)

    def _open(self, kind: PassKind, parts: list[int], surprise: float) -> None:
        """Make uncertain what could explain a surprise: the machine, and what is the kind's own, if
        not all else is unusual too. That others were usual just before does not clear the machine:
        where every round drafts, whatever changes is seen on one kind first.
        """
        p, square, own = self._p, surprise**2, parts[-1]
        near = self._made - NEAR
        whole = not any(n >= near for other, n in self._as_expected.items() if other is not kind)
        p[0, 0] += square
        if whole:
            for draft in self._drafts:
                p[draft, draft] += square
        if kind is PassKind.SEVERAL:
            p[1, 1] += square * (_STEEPER_IF_ALL if whole else _STEEPER_IF_ALONE)
        elif kind is PassKind.ONE and surprise < 0 and not whole:
            p[1, 1] += square  # a neighbour may have left: passes over several are quicker too then
        alone = _OFFSET_IF_ALONE if kind is PassKind.SEVERAL else 1.0
        p[own, own] += square * (_OFFSET_IF_ALL if whole else alone)
