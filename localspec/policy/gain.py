"""What drafting gains: E[emitted] against seconds, in units of plain decoding.

With s the acceptance of the first token and m that of later ones, a draft of k tokens emits
1 + s * (1 + m + ... + m^(k-1)) on average (Leviathan et al. 2023, section 3.1, with a first token
of known confidence) and takes t(k + 1) + k * cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.policy.acceptance import AcceptanceEstimate, bin_of

Curve = NDArray[np.float64]
"""(K + 1,) cost of a target pass by draft length 0..K, in plain passes; the first is 1."""


@dataclass(frozen=True, slots=True)
class GainTuning:
    """Constants of `GainPace`."""

    ahead: int = 16
    """Tokens beyond the one in question that may justify it: more than the widest step of a known
    curve (on AVX-512, from four tokens to sixteen)."""


class Gain:
    """The expected gain of one drafter now."""

    def __init__(self, acceptance: AcceptanceEstimate, curve: Curve, cost: float) -> None:
        """``cost`` is that of a drafted token, in plain passes."""
        self.table = acceptance.table()
        self.mean = acceptance.mean(self.table)
        self.curve = curve
        self.cost = cost
        total = acceptance.first.sum()
        self._firsts = acceptance.first / total if total > 0 else acceptance.first
        lengths = np.arange(1, len(curve))
        runs = np.cumsum(self.mean ** (lengths - 1))
        self._emitted = 1 + np.outer(self.table, runs)
        self._costs = curve[1:] + lengths * cost

    def rates(self) -> NDArray[np.float64]:
        """(BINS,) best E[emitted] / seconds by the first token's confidence; at least 1, plain."""
        if not len(self._costs):
            return np.ones(len(self.table))
        best: NDArray[np.float64] = (self._emitted / self._costs).max(axis=1)
        return np.maximum(best, 1.0, out=best)

    def rate(self) -> float:
        """The rate that the drafter is expected to reach on average; 0 where nothing is known."""
        return float(self._firsts @ self.rates())

    def tokens(self) -> float:
        """Tokens per round that asking the drafter is expected to gain on plain decoding.

        The first q is paid in any case; where its confidence is too low, nothing is drafted.
        """
        if not len(self._costs):
            return -self.cost
        best = (self._emitted - self._costs).max(axis=1) + self.cost
        return float(self._firsts @ np.maximum(0.0, best)) - self.cost


def most_gain(curve: Curve, cost: float, acceptance: float = 1.0) -> float:
    """Tokens per round that a drafter would gain if each token had this acceptance."""
    lengths = np.arange(1, len(curve))
    gain = np.cumsum(acceptance**lengths) - (curve[1:] - 1) - lengths * cost
    return float(gain.max(initial=-cost))


class GainPace:
    """A `localspec.core.plan.Pace`: includes a token where it is expected to gain."""

    __slots__ = ("_ahead", "_cost", "_curve", "_instead", "_mean", "_rates", "_table")

    def __init__(
        self,
        gain: Gain,
        instead: float,
        tuning: GainTuning = GainTuning(),
    ) -> None:
        """``instead`` is the rate that this round would reach without this drafter."""
        self._rates = gain.rates().tolist()
        self._table = gain.table.tolist()
        self._mean = gain.mean
        self._curve = gain.curve.tolist()
        self._cost = gain.cost
        self._instead = instead
        self._ahead = tuning.ahead

    def more(self, confidences: Sequence[float]) -> bool:
        """For the first token: whether any length beats drafting nothing. For later ones: whether
        continuing for up to ``ahead`` tokens beats stopping, at the rate that the draft set out
        for (to maximise a ratio is to maximise E[emitted] - rate * seconds at the best ratio).
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
        extra = 0.0
        for longer in range(k, min(k + self._ahead, len(curve))):
            emitted += reach
            if emitted - rate * (curve[longer] + extra) >= enough:
                return True
            extra += self._cost
            reach *= self._mean
        return False

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether up to ``ahead`` more tokens of mean acceptance, each at the cost of a drafted
        token, would beat stopping here at the rate that the draft set out for.
        """
        k = len(confidences)
        curve, rate = self._curve, self._rates[bin_of(confidences[0])]
        reach = 1.0
        for confidence in confidences:
            reach *= self._table[bin_of(confidence)]
        gained = paid = 0.0
        for longer in range(k + 1, min(k + 1 + self._ahead, len(curve))):
            reach *= self._mean
            gained += reach
            paid += self._cost
            if gained > rate * (curve[longer] - curve[k] + paid):
                return True
        return False


__all__ = ["Curve", "Gain", "GainPace", "GainTuning", "most_gain"]
