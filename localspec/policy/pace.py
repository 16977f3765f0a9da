"""How far a draft goes: token by token, by the confidences that it has shown so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from localspec.policy.acceptance import bin_of
from localspec.policy.gain import Expected
from localspec.policy.prices import Prices, zero_to

AHEAD = 16
"""Tokens beyond the one in question that may justify it: more than the widest step of a known
curve (on AVX-512, from four tokens to sixteen)."""
STEADY = 0.5
"""How far copied tokens beyond the one in question are accepted like it, not like the mean: a
long copy goes on being right, which matters where the curve has steps."""


class GainPace:
    """A `localspec.core.plan.Pace`: includes a token where it is expected to gain."""

    __slots__ = (
        "_allowed", "_cost", "_curve", "_expected", "_first", "_instead", "_longest", "_make",
        "_most", "_prices", "_rate",
    )  # fmt: skip

    def __init__(
        self,
        make: Callable[[], Expected],
        prices: Prices,
        instead: float = 1.0,
        allowed: float = math.inf,
        most: float = math.inf,
    ) -> None:
        """``instead`` is the rate that this round would reach without this drafter; see `weigh` for
        the rest. Nothing is computed before a drafter has something to propose.
        """
        self._make, self._prices, self._instead = make, prices, instead
        self._allowed, self._most = allowed, most
        self._first = -1
        self._curve: list[float] = []

    def _start(self, first: int) -> None:
        """Find the rate that a draft sets out for whose first token is in this bin."""
        if not self._curve:
            self._expected, self._cost = self._make(), self._prices.cost
            self._curve = self._prices.curve.tolist()
        expected, prices = self._expected, self._prices
        self._first, self._longest, self._rate = first, 0, 1.0
        chance = expected.table[first]
        emitted = expected.emitted(prices, chance)
        if not len(emitted) or (emitted - prices.costs).max() <= 0:
            return
        fits = (expected.risk(prices, chance) <= max(0.0, self._allowed)) & (
            prices.losses <= self._most
        )
        lengths = zero_to(len(emitted))[1:][fits]
        if len(lengths):
            self._longest = int(lengths[-1])
            self._rate = max(1.0, float(np.max(emitted[fits] / prices.costs[fits])))

    def more(self, confidences: Sequence[float]) -> bool:
        """Whether to go on. The first token: if any length beats drafting nothing. Later ones: if
        continuing for up to ``AHEAD`` tokens beats stopping, at the rate that the draft set out
        for (to maximise a ratio is to maximise E[emitted] - rate * seconds at the best ratio).
        """
        k, first = len(confidences), bin_of(confidences[0])
        if first != self._first:
            self._start(first)
        rate, longest = self._rate, self._longest
        if k > longest or rate <= self._instead:
            return False
        if k == 1:
            return True
        curve, table, mean = self._curve, self._expected.table, self._expected.mean
        reach = emitted = 1.0
        for confidence in confidences[:-1]:
            reach *= table[bin_of(confidence)]
            emitted += reach
        enough = emitted - rate * curve[k - 1]
        here = table[bin_of(confidences[-1])]
        later = mean if self._cost else mean + STEADY * max(0.0, here - mean)
        reach *= here
        extra = 0.0
        for longer in range(k, min(k + AHEAD, longest + 1)):
            emitted += reach
            if emitted - rate * (curve[longer] + extra) >= enough:
                return True
            extra += self._cost
            reach *= later
        return False

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether up to ``AHEAD`` more tokens of mean acceptance, each at the cost of a drafted
        token, would beat stopping here at the rate that the draft set out for.
        """
        k, first = len(confidences), bin_of(confidences[0])
        if first != self._first:
            self._start(first)
        table, mean, curve, rate = (
            self._expected.table,
            self._expected.mean,
            self._curve,
            self._rate,
        )
        reach = 1.0
        for confidence in confidences:
            reach *= table[bin_of(confidence)]
        gained = paid = 0.0
        for longer in range(k + 1, min(k + 1 + AHEAD, self._longest + 1)):
            reach *= mean
            gained += reach
            paid += self._cost
            if gained > rate * (curve[longer] - curve[k] + paid):
                return True
        return False


__all__ = ["GainPace"]
