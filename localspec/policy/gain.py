"""What drafting is expected to gain, and to lose in the cautious case, in plain tokens.

With s the acceptance of the first token and m that of later ones, a draft of k tokens emits
1 + s * (1 + m + ... + m^(k-1)) on average (Leviathan et al. 2023, section 3.1, with a first token
of known confidence) and takes t(k + 1) + k * cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.core.settings_schema import MAX_K
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.prices import Prices, zero_to

DOUBT = 2.0
"""Standard deviations by which a text may be worse or better than it is believed to be."""
ENOUGH = 8
"""Guesses in a text from which on they say more of it than other texts do."""
MARGIN = 0.03
"""Tokens per round that a drafter that computes must be expected to gain."""


class Expected:
    """The tokens that one drafter's drafts are expected to emit in a text, whatever they cost."""

    def __init__(
        self, text: AcceptanceEstimate, lengths: int, table: Sequence[float] | None = None
    ) -> None:
        """Drafts have 1 to ``lengths`` tokens, K; ``table`` replaces the cautious acceptance of
        ``text`` by confidence.
        """
        self.table = text.table() if table is None else table
        """(BINS,) acceptance of a token by its confidence."""
        self.mean = text.mean(self.table)
        self._worse = math.exp(-DOUBT * text.deviation)
        """Factor on the odds of acceptance in the cautious case."""
        self.first = text.first
        self.powers = self.mean ** zero_to(lengths)
        """(K + 1,) chance of 0 to K later tokens."""
        self.sums = np.zeros(lengths + 1)
        """(K + 1,) their sums: of none, of the first, of the first two, ..."""
        np.cumsum(self.powers[:-1], out=self.sums[1:])
        self._gain: tuple[Prices, float] | None = None

    def gain(self, prices: Prices) -> float:
        """Tokens per round that asking the drafter gains, were every loss affordable."""
        if self._gain is None or self._gain[0] is not prices:
            weigh(self, prices)
        assert self._gain is not None  # it was noted
        return self._gain[1]

    def note(self, prices: Prices, gain: float) -> None:
        """Keep what `gain` has found."""
        self._gain = prices, gain

    def may_gain(self, prices: Prices) -> bool:
        """Whether that is more than nothing, as far as it was computed."""
        return self._gain is None or self._gain[0] is not prices or self._gain[1] > MARGIN

    @property
    def firsts(self) -> NDArray[np.float64]:
        """(BINS,) how frequent each confidence of a first token was lately; zeros if unknown."""
        total = self.first.sum()
        return self.first / total if total > 0 else self.first

    def emitted(
        self, prices: Prices, chance: float | NDArray[np.float64], end: int | None = None
    ) -> NDArray[np.float64]:
        """(..., K) expected tokens of a round, where the first token is accepted with this chance;
        of drafts up to ``end`` tokens, if given.
        """
        end = len(prices.costs) if end is None else end
        found: NDArray[np.float64] = 1 + chance * self.sums[1 : end + 1]
        return found

    def risk(
        self, prices: Prices, chance: float | NDArray[np.float64], end: int | None = None
    ) -> NDArray[np.float64]:
        """(..., K) the loss of a draft in the cautious case, in which its first token is accepted
        less often than with this chance; see `emitted`.

        sqrt(L E[S]) for the loss L of a rejected draft and its shortfall S <= L: at least the root
        mean square of S, so neither a likely small loss nor an unlikely large one is overlooked.
        E[S] = E[max(0, L - X)] for X accepted tokens, where P(X > j) = s * m^j: L less a term for
        each token that would make up for a part of it, whole ones first. A draft that gains more
        than that in the cautious case risks nothing.
        """
        low = chance * self._worse / (1 - chance + chance * self._worse)
        whole = prices.whole[:end]
        reach = self.sums[whole] + prices.part[:end] * self.powers[whole]
        losses = prices.losses[:end]
        short = losses - low * reach
        risk = np.sqrt(losses * np.maximum(short, 0.0, out=short))
        gain = low * self.sums[1 : 1 + len(losses)] - losses
        np.copyto(risk, 0.0, where=gain >= risk)
        found: NDArray[np.float64] = risk
        return found

    def useful(self, prices: Prices) -> int:
        """Length from which on no draft pays even if its first token is accepted."""
        paying = np.flatnonzero(self.sums[1 : len(prices.curve)] > prices.costs - 1)
        return int(paying[-1]) + 1 if len(paying) else 0


@dataclass(frozen=True, slots=True)
class Weighed:
    """What asking a drafter is expected to bring, with drafts that the budgets allow."""

    tokens: float
    """Gain of a round over plain decoding."""
    unlimited: float
    """The same, were every loss affordable."""
    rate: float = 1.0
    """Tokens for the time of a plain one."""
    depth: int = 0
    """The longest draft that is allowed."""


def weigh(
    expected: Expected,
    prices: Prices,
    allowed: float = math.inf,
    most: float = math.inf,
    *,
    rated: bool = False,
) -> Weighed:
    """What asking a drafter brings where a draft may lose ``allowed`` tokens in the cautious case
    and cost ``most`` if all is rejected; with its rate if that is wanted.

    The first q is paid in any case; where its confidence is too low, nothing is drafted.
    """
    cost, end = prices.cost, expected.useful(prices)
    if not end:
        expected.note(prices, -cost)
        return Weighed(-cost, -cost)
    depth, costs = len(prices.costs), prices.costs[:end]
    firsts, chances = expected.firsts, np.array(expected.table)[:, None]
    emitted = expected.emitted(prices, chances, end)
    gains = emitted - costs
    unlimited = tokens = float(firsts @ np.maximum(gains.max(axis=1) + cost, 0.0)) - cost
    if allowed < math.inf or most < math.inf:
        refused = expected.risk(prices, chances, end) > max(0.0, allowed)
        if most < math.inf:
            refused |= prices.losses[:end] > most
        if refused.any():
            np.copyto(gains, -math.inf, where=refused)
            tokens = float(firsts @ np.maximum(gains.max(axis=1) + cost, 0.0)) - cost
            np.copyto(emitted, 0.0, where=refused)
            if refused[:, -1].all():
                lengths = np.flatnonzero(~refused.all(axis=0))
                depth = int(lengths[-1]) + 1 if len(lengths) else 0
    expected.note(prices, unlimited)
    rate = 1.0
    if rated:
        rate = float(firsts @ np.maximum((emitted / costs).max(axis=1), 1.0))
    return Weighed(tokens, unlimited, rate, depth)


def prospect(drafter: AcceptanceEstimate, prices: Prices, better: Sequence[float]) -> float:
    """Tokens that drafting may gain for each token of a text of which nothing is known, where it is
    better than usual by so many standard deviations: the mean of these cases, without losses, since
    a text in which drafting loses is given up soon.
    """
    text = drafter.usual_text()
    found = 0.0
    for deviations in better:
        expected = Expected(text, len(prices.costs), text.table(deviations))
        tokens = max(0.0, weigh(expected, prices).tokens)
        found += tokens / (1 + tokens) / len(better)
    return found


def expected_tokens(alpha: float, k: float) -> float:
    """E[tokens of a round] = (1 - alpha^(K+1)) / (1 - alpha).

    Leviathan et al. 2023, equation 1: K drafted tokens that are accepted independently with
    probability alpha each, and one token of the target.
    """
    return k + 1 if alpha >= 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def best_fixed(
    acceptance: Sequence[float], curve: Mapping[int, float], cost: float, k_max: int = MAX_K
) -> tuple[float, int]:
    """(Speed relative to plain decoding, K) of the best draft length for all rounds.

    Leviathan et al. 2023, section 3.3, with a measured curve in place of a cost ratio and
    acceptance by position: E[tokens | K] * t(1) / (t(K + 1) + K * cost). ``acceptance[i]`` is that
    of the i-th drafted token where it was verified, and the last one applies to all beyond;
    ``curve`` maps the width of a pass to seconds; ``cost`` is seconds per drafted token. K = 0 is
    plain decoding, so the ratio is at least 1.
    """
    widths = sorted(curve)
    best, chosen, emitted, reach = 1.0, 0, 1.0, 1.0
    for k in range(1, min(k_max, widths[-1] - 1) + 1):
        reach *= acceptance[min(k, len(acceptance)) - 1] if acceptance else 0.0
        emitted += reach
        seconds = float(np.interp(k + 1, widths, [curve[n] for n in widths])) + k * cost
        ratio = emitted * float(np.interp(1, widths, [curve[n] for n in widths])) / seconds
        if ratio > best:
            best, chosen = ratio, k
    return best, chosen


__all__ = [
    "DOUBT",
    "MARGIN",
    "Expected",
    "Weighed",
    "best_fixed",
    "expected_tokens",
    "prospect",
    "weigh",
]
