"""What drafting is expected to gain, and to lose in the cautious case, in plain tokens.

With s the acceptance of the first token and m that of later ones, a draft of k tokens emits
1 + s * (1 + m + ... + m^(k-1)) on average (Leviathan et al. 2023, section 3.1, with a first token
of known confidence) and takes t(k + 1) + k * cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.prices import DOUBT, Prices, zero_to


@dataclass(frozen=True, slots=True)
class Budgets:
    """What may be lost in the next round, in plain tokens."""

    reply: float
    """By this request's own drafts that are expected to pay, in the cautious case; what all draft
    together has the budget in `localspec.policy.company.Agreed`."""
    others: float
    """By the other requests of the round, if a draft that copies is rejected; in all."""
    looks: float
    """Certain cost of probes and trials that the round may have."""
    answers: float = math.inf
    """Certain cost of the answers of drafters that copy, which find a match or none."""


PLENTY = Budgets(math.inf, math.inf, math.inf)


_PRICES = 4
"""Prices of which the results are kept: those of now, and as low as they may be."""


@dataclass(slots=True)
class _Known:
    """What was computed at some prices: a round asks for the same as the one before it, as long as
    nothing new is seen.
    """

    prices: Prices
    """Kept, so that no others are taken for them."""
    gains: NDArray[np.float64] | None
    gain: float | None = None
    risk: NDArray[np.float64] | None = None


class Expected:
    """The tokens that one drafter's drafts are expected to emit in a text, whatever they cost."""

    def __init__(
        self, text: AcceptanceEstimate, lengths: int, table: Sequence[float] | None = None
    ) -> None:
        """The prospects of drafts of 1 to ``lengths`` tokens, K; ``table`` may replace that of
        ``text``.
        """
        self.lengths = lengths
        self.table = text.table() if table is None else table
        """(BINS,) acceptance of a token by its confidence."""
        self._chances = np.array(self.table)
        self.mean = text.mean(self.table)
        self._worse = math.exp(-DOUBT * text.deviation)
        """Factor on the odds of acceptance in the cautious case."""
        self.firsts = np.array(text.seen) / max(sum(text.seen), 1e-9)
        """(BINS,) how frequent each confidence of a token was lately; zeros if unknown."""
        self._powers = self.mean ** zero_to(lengths)
        """(K + 1,) chance of 0 to K later tokens."""
        self._sums = (1 - self._powers) / max(1 - self.mean, 1e-9)
        """(K + 1,) their sums: of none, of the first, of the first two, ..."""
        self._known: dict[int, _Known] = {}

    def emitted(self, chance: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., K) expected tokens of a round whose first token is accepted with this chance."""
        return np.asarray(1 + chance * self._sums[1:])

    def gain(self, prices: Prices, budgets: Budgets | None = None) -> float:
        """Tokens per round that asking the drafter gains, with drafts that the budgets allow, if
        any are given. The first q is paid even where its confidence is too low for a draft.
        """
        known = self._known.get(id(prices))
        if known is None:
            if len(self._known) >= _PRICES:
                self._known.clear()
            known = self._known[id(prices)] = _Known(prices, self._gains(prices))
        gains = known.gains
        if gains is None:
            return -prices.cost
        if budgets is None:
            if known.gain is None:
                known.gain = self._mean_gain(gains, prices)
            return known.gain
        if known.risk is None:
            known.risk = self.risk(prices, self._chances[:, None])
        fits = _fits(known.risk, prices, budgets)[:, : gains.shape[1]]
        return self._mean_gain(gains * fits, prices)

    def _gains(self, prices: Prices) -> NDArray[np.float64] | None:
        """(BINS, lengths) tokens that drafts gain beside the first q's cost, by the confidence of
        their first token; None if none gains, even if that is accepted.
        """
        paying = (self._sums[1:] > prices.losses).nonzero()[0]
        if not len(paying):
            return None
        end = int(paying[-1]) + 1
        costs = prices.costs[:end] - (1 + prices.cost)
        return np.asarray(self._chances[:, None] * self._sums[1 : end + 1] - costs)

    def _mean_gain(self, gains: NDArray[np.float64], prices: Prices) -> float:
        return float(self.firsts @ np.maximum(gains.max(axis=1), 0.0)) - prices.cost

    def rate(self, prices: Prices) -> float:
        """Tokens for the time of a plain one, by a draft of the length that is best on average."""
        emitted = self.emitted(self._usual)
        best = int((emitted - prices.costs).argmax())
        return float(emitted[best] / prices.costs[best])

    def risk(self, prices: Prices, chance: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., K) what a draft is charged: sqrt(L E[S]) in the cautious case, for the loss L of a
        rejected one and its shortfall S, at least the root mean square of S.

        E[S] = E[max(0, L - X)] for X accepted tokens, where P(X > j) = s * m^j: L less a term for
        each token that would make up for a part of it, whole ones first. A draft that gains more
        than that in the cautious case is charged nothing.
        """
        low = self._cautious(chance)
        whole, losses = prices.whole, prices.losses
        short = losses - low * (self._sums[whole] + prices.part * self._powers[whole])
        return charge(losses, np.maximum(short, 0.0), np.asarray(low * self._sums[1:]))

    def accepted(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(K,) tokens of a draft that are expected to be accepted, whatever its confidences, and
        the same in the cautious case.
        """
        chance, later = self._usual, self._sums[1:]
        return np.asarray(chance * later), np.asarray(self._cautious(chance) * later)

    @property
    def _usual(self) -> float:
        """Chance of a first token whose confidence is not known."""
        return float(self.firsts @ self._chances)

    def _cautious(self, chance: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        return chance * self._worse / (1 - chance + chance * self._worse)

    def fits(
        self, prices: Prices, chance: float | NDArray[np.float64], budgets: Budgets
    ) -> NDArray[np.bool_]:
        """(..., K) which drafts cost no more than the budgets have; see `risk`."""
        return _fits(self.risk(prices, chance), prices, budgets)


def _fits(risk: NDArray[np.float64], prices: Prices, budgets: Budgets) -> NDArray[np.bool_]:
    return np.asarray((risk <= max(0.0, budgets.reply)) & (prices.losses <= budgets.others))


def charge(
    losses: NDArray[np.float64], short: NDArray[np.float64], accepted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What drafts are charged that lose ``losses`` if rejected and that in the cautious case fall
    ``short`` of that by so much: nothing where ``accepted`` tokens gain more there.
    """
    risk = np.sqrt(losses * short)
    return np.where(accepted - losses >= risk, 0.0, risk)


def for_each_token(gain: float) -> float:
    """Tokens gained for each one emitted, where a round gains so many if that is any."""
    return max(0.0, gain) / (1 + max(0.0, gain))


def prospect(drafter: AcceptanceEstimate, prices: Prices, better: Sequence[float]) -> float:
    """Tokens that drafting may gain for each one of a text of which nothing is known, where it is
    better than usual by so many deviations: the mean of these cases. One that loses is given up.
    """
    text, lengths = drafter.usual_text(), len(prices.costs)
    cases = [Expected(text, lengths, text.table(deviations)).gain(prices) for deviations in better]
    return sum(map(for_each_token, cases)) / len(cases)
