"""What drafting is worth: E[emitted] against seconds, in units of plain decoding.

With s the survival of the first token and m that of later ones, a draft of k tokens emits
1 + s * (1 + m + ... + m^(k-1)) on average (Leviathan et al. 2023, section 3.1, with a first token
of known confidence) and lasts t(k + 1) + k * cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.policy.acceptance import AcceptanceEstimate, bin_of

_AHEAD = 16
"""Tokens beyond the one in question that may justify it: more than the widest step of a known curve
(on AVX-512, from four tokens to sixteen)."""
Curve = NDArray[np.float64]
"""(K + 1,) target pass by draft length 0..K, in plain passes; the first is 1."""


class Gain:
    """Of one drafter now."""

    def __init__(self, survival: AcceptanceEstimate, curve: Curve, cost: float) -> None:
        """``cost`` is that of a drafted token, in plain passes."""
        self.table = survival.table()
        self.mean = survival.mean(self.table)
        self.curve = curve
        self.cost = cost
        total = survival.first.sum()
        self._firsts = survival.first / total if total > 0 else survival.first
        lengths = np.arange(1, len(curve))
        runs = np.cumsum(self.mean ** (lengths - 1))
        self._emitted = 1 + np.outer(self.table, runs)
        self._lasting = curve[1:] + lengths * cost

    def rates(self) -> NDArray[np.float64]:
        """(BINS,) best E[emitted] / seconds by the first token's confidence; at least 1, plain."""
        if not len(self._lasting):
            return np.ones(len(self.table))
        best: NDArray[np.float64] = (self._emitted / self._lasting).max(axis=1)
        return np.maximum(best, 1.0, out=best)

    def rate(self) -> float:
        """The rate that the drafter is expected to reach on average; 0 where nothing is known."""
        return float(self._firsts @ self.rates())

    def gain(self) -> float:
        """Tokens a round that asking it is expected to gain on plain decoding.

        A look at the first q is paid in any case; where it shows no promise, nothing is drafted.
        """
        if not len(self._lasting):
            return -self.cost
        best = (self._emitted - self._lasting).max(axis=1) + self.cost
        return float(self._firsts @ np.maximum(0.0, best)) - self.cost


def most_gain(curve: Curve, cost: float, stands: float = 1.0) -> float:
    """Tokens a round that a drafter would gain if each of its tokens stood so often."""
    lengths = np.arange(1, len(curve))
    won = np.cumsum(stands**lengths) - (curve[1:] - 1) - lengths * cost
    return float(won.max(initial=-cost))


class Pace:
    """Whether one more token is worth it."""

    __slots__ = ("_cost", "_curve", "_instead", "_mean", "_rates", "_table")

    def __init__(self, worth: Gain, instead: float) -> None:
        """``instead`` is the rate that this round would reach without this drafter."""
        self._rates = worth.rates().tolist()
        self._table = worth.table.tolist()
        self._mean = worth.mean
        self._curve = worth.curve.tolist()
        self._cost = worth.cost
        self._instead = instead

    def more(self, confidences: Sequence[float]) -> bool:
        """The first token: whether any length beats doing without. Later ones: whether going on,
        up to sixteen tokens further, beats stopping, at the rate that the draft set out for (to
        maximise a ratio is to maximise E[emitted] - rate * seconds at the best ratio).
        """
        k = len(confidences)
        curve, table = self._curve, self._table
        rate = self._rates[bin_of(confidences[0])]
        if k >= len(curve) or rate <= self._instead:
            return False
        if k == 1:
            return True
        reach = emitted = 1.0
        for confidence in confidences[:-1]:
            reach *= table[bin_of(confidence)]
            emitted += reach
        enough = emitted - rate * curve[k - 1]
        reach *= table[bin_of(confidences[-1])]
        ahead = 0.0
        for longer in range(k, min(k + _AHEAD, len(curve))):
            emitted += reach
            if emitted - rate * (curve[longer] + ahead) >= enough:
                return True
            ahead += self._cost
            reach *= self._mean
        return False

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether up to sixteen tokens more, each a look and a drafted token of mean survival,
        would beat stopping here at the rate that the draft set out for.
        """
        k = len(confidences)
        curve, rate = self._curve, self._rates[bin_of(confidences[0])]
        reach = 1.0
        for confidence in confidences:
            reach *= self._table[bin_of(confidence)]
        won = paid = 0.0
        for longer in range(k + 1, min(k + 1 + _AHEAD, len(curve))):
            reach *= self._mean
            won += reach
            paid += self._cost
            if won > rate * (curve[longer] - curve[k] + paid):
                return True
        return False
