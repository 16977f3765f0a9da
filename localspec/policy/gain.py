"""The gain of drafting: E[emitted] against seconds, in units of plain decoding.

With s the acceptance of the first token and m that of later ones, a draft of k tokens emits
1 + s * (1 + m + ... + m^(k-1)) on average (Leviathan et al. 2023, section 3.1, with a first token
of known confidence) and takes t(k + 1) + k * cost.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.policy.acceptance import AcceptanceEstimate

Curve = NDArray[np.float64]
"""(K + 1,) cost of a target pass by draft length 0..K, in plain passes; the first is 1."""


@dataclass(frozen=True, slots=True)
class GainTuning:
    """Constants of `Gain`, `never_paid` and `localspec.policy.pace.GainPace`."""

    margin: float = 0.03
    """Tokens per round that a drafter that computes must be expected to gain."""
    rare: float = 1.0
    """Judged tokens that make a confidence bin count as seen."""
    enough: float = 20.0
    """Judged tokens before an empty bin counts as evidence."""

    ahead: int = 16
    """Tokens beyond the one in question that may justify it: more than the widest step of a known
    curve (on AVX-512, from four tokens to sixteen)."""
    steady: float = 0.5
    """How far copied tokens beyond the one in question are accepted like it, not like the mean: a
    long copy goes on being right, which matters where the curve has steps."""
    shortfall: float = 3.0
    """How much the expected shortfall of a draft counts against what may be lost."""
    rejected: float = 3.0
    """How often what may be lost a draft may cost if all of it is rejected."""


@functools.cache
def _from_zero(end: int) -> NDArray[np.int64]:
    found = np.arange(end)
    found.flags.writeable = False
    return found


def lengths_of(end: int) -> NDArray[np.int64]:
    """(end - 1,) the lengths 1 to ``end - 1``, made once: numpy's functions take longer than all
    arithmetic here where a pass of the target has emptied the processor's caches.
    """
    return _from_zero(end)[1:]


class Prices:
    """The cost of drafts of each length, and their shortfall if little is accepted."""

    def __init__(self, curve: Curve, cost: float) -> None:
        """``cost`` is that of a drafted token, in plain passes."""
        self.curve = curve
        self.cost = cost
        self.costs = curve[1:] + lengths_of(len(curve)) * cost
        """(K,) cost of rounds with drafts of 1 to K tokens."""
        self.losses = self.costs - 1
        """(K,) what a rejected draft loses."""
        self._most: float | None = None

    def most_gain(self) -> float:
        """See `most_gain`, where all is accepted."""
        if self._most is None:
            self._most = most_gain(self.curve, self.cost)
        return self._most

    @functools.cached_property
    def _makes_up(self) -> tuple[Curve, NDArray[np.int64], Curve]:
        """(K,) each loss, and the tokens that make up for it: whole ones, and a part of one."""
        lengths = lengths_of(len(self.curve))
        losses = np.maximum(self.losses, 0.0)
        whole = np.minimum(losses.astype(np.int64), lengths)
        return losses, whole, np.where(whole < lengths, losses - whole, 0.0)

    def shortfall(self, expected: Expected) -> NDArray[np.float64]:
        """(BINS, K) expected tokens by which a draft falls short of its cost.

        E[max(0, L - X)] for a loss L and X accepted tokens, where P(X > j) = s * m^j: L less a term
        for each token that would make up for a part of it, whole ones first.
        """
        losses, whole, part = self._makes_up
        reach = expected.sums[whole] + part * expected.powers[whole]
        found: NDArray[np.float64] = losses - expected.table[:, None] * reach
        return np.maximum(found, 0.0, out=found)


class Expected:
    """The tokens that one drafter's drafts are expected to emit now, whatever they cost."""

    def __init__(
        self,
        acceptance: AcceptanceEstimate,
        lengths: int,
        table: NDArray[np.float64] | None = None,
    ) -> None:
        """Drafts have 1 to ``lengths`` tokens, K; ``table`` replaces the cautious one of
        ``acceptance``.
        """
        self.table = acceptance.table() if table is None else table
        self.mean = acceptance.mean(self.table)
        total = acceptance.first.sum()
        self.firsts = acceptance.first / total if total > 0 else acceptance.first
        """(BINS,) how frequent each confidence of a first token was lately; zeros if unknown."""
        self.powers = self.mean ** _from_zero(lengths + 1)
        """(K + 1,) chance of 0 to K later tokens."""
        self.sums = np.zeros(lengths + 1)
        """(K + 1,) their sums: of none, of the first, of the first two, ..."""
        np.cumsum(self.powers[:-1], out=self.sums[1:])
        self.emitted = 1 + np.outer(self.table, self.sums[1:])
        """(BINS, K) E[emitted] by the first token's confidence and the draft's length."""


class Outlook:
    """The expected gain of one drafter's drafts, whatever the reply can afford."""

    def __init__(
        self, expected: Expected, prices: Prices, tuning: GainTuning = GainTuning()
    ) -> None:
        """Both are of drafts of the same lengths."""
        self.expected = expected
        self.prices = prices
        self.tuning = tuning
        self._tokens: float | None = None
        self._gain: tuple[float, float, Gain] | None = None

    def gain(self, allowed: float, most: float) -> Gain:
        """See `Gain`; a plan and the pace of its draft ask for the same."""
        if self._gain is None or self._gain[:2] != (allowed, most):
            self._gain = allowed, most, Gain(self, allowed, most)
        return self._gain[2]

    @property
    def tokens(self) -> float:
        """See `Gain.tokens`, were every loss affordable."""
        if self._tokens is None:
            self._tokens = Gain(self).tokens()
        return self._tokens


def prospect(drafter: AcceptanceEstimate, prices: Prices, tuning: GainTuning) -> float:
    """Tokens that drafting may gain for each token of a text of which nothing is known: between
    what is expected and what comes with luck, since a text in which it loses is given up soon.
    """
    text = drafter.usual_text()
    tables = text.table(), text.optimistic()
    lengths = len(prices.costs)
    gains = [
        max(0.0, Outlook(Expected(text, lengths, table), prices, tuning).tokens) for table in tables
    ]
    return sum(gain / (1 + gain) for gain in gains) / len(gains)


class Gain:
    """The expected gain of one drafter now, with the drafts that the reply can afford."""

    def __init__(self, outlook: Outlook, allowed: float = math.inf, most: float = math.inf) -> None:
        """``allowed`` is what a draft may lose, and ``most`` what it may cost in any case."""
        self.outlook = outlook
        prices, tuning = outlook.prices, outlook.tuning
        self._rates: NDArray[np.float64] | None = None
        self._refused = np.zeros(outlook.expected.emitted.shape, bool)
        if allowed < math.inf:
            short = prices.shortfall(outlook.expected)
            self._refused = tuning.shortfall * short > allowed
        limit = min(tuning.rejected * allowed, most)
        if limit < math.inf:
            self._refused |= (prices.losses > limit)[None, :]

    def longest(self) -> NDArray[np.int64]:
        """(BINS,) tokens of the longest draft that the reply can afford, by the first token's
        confidence.
        """
        lengths = lengths_of(self._refused.shape[1] + 1)
        found: NDArray[np.int64] = np.where(self._refused, 0, lengths[None, :]).max(
            axis=1, initial=0
        )
        return found

    def rates(self) -> NDArray[np.float64]:
        """(BINS,) best E[emitted] / seconds by the first token's confidence; at least 1, plain."""
        outlook = self.outlook
        if not len(outlook.prices.costs):
            return np.ones(len(outlook.expected.table))
        if self._rates is None:
            each = np.where(self._refused, 0.0, outlook.expected.emitted / outlook.prices.costs)
            self._rates = np.maximum(each.max(axis=1), 1.0)
        return self._rates

    def rate(self) -> float:
        """The rate that the drafter is expected to reach on average; 0 where nothing is known."""
        return float(self.outlook.expected.firsts @ self.rates())

    def tokens(self) -> float:
        """Tokens per round that asking the drafter is expected to gain on plain decoding.

        The first q is paid in any case; where its confidence is too low, nothing is drafted.
        """
        expected, prices = self.outlook.expected, self.outlook.prices
        cost = prices.cost
        if not len(prices.costs):
            return -cost
        gains = np.where(self._refused, -np.inf, expected.emitted - prices.costs)
        best = gains.max(axis=1) + cost
        return float(expected.firsts @ np.maximum(0.0, best)) - cost


def most_gain(curve: Curve, cost: float, acceptance: float = 1.0) -> float:
    """Tokens per round that a drafter would gain if each token had this acceptance."""
    lengths = lengths_of(len(curve))
    gain = np.cumsum(acceptance**lengths) - (curve[1:] - 1) - lengths * cost
    return float(gain.max(initial=-cost))


def never_paid(
    acceptance: AcceptanceEstimate, curve: Curve, cost: float, tuning: GainTuning
) -> bool:
    """Whether drafting would hardly pay, with luck, even in a text whose tokens all have the
    highest confidence that ever occurred. The last text's acceptance does not count: it says little
    about the next one.
    """
    if not acceptance.evidence:
        return False
    pays = [most_gain(curve, cost, p) > tuning.margin for p in acceptance.optimistic()]
    enough = acceptance.evidence >= tuning.enough
    rare = enough and bool(acceptance.judged[pays].sum() <= tuning.rare)
    return rare or not any(pays)


__all__ = [
    "Curve",
    "Expected",
    "Gain",
    "GainTuning",
    "Outlook",
    "Prices",
    "lengths_of",
    "most_gain",
    "never_paid",
    "prospect",
]
