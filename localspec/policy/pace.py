"""How far a draft goes: token by token, by the confidences that it has shown so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from localspec.policy.acceptance import bin_of
from localspec.policy.gain import Outlook


class GainPace:
    """A `localspec.core.plan.Pace`: includes a token where it is expected to gain."""

    __slots__ = (
        "_ahead", "_allowed", "_cost", "_curve", "_instead", "_longest", "_mean", "_most",
        "_outlook", "_rates", "_steady", "_table",
    )  # fmt: skip

    def __init__(
        self,
        outlook: Outlook,
        instead: float = 1.0,
        allowed: float = math.inf,
        most: float = math.inf,
    ) -> None:
        """``instead`` is the rate that this round would reach without this drafter; see `Gain` for
        the rest. Nothing is computed before a drafter has something to propose.
        """
        self._outlook = outlook
        self._instead = instead
        self._allowed, self._most = allowed, most
        self._longest: list[int] = []

    def allow(self, tokens: float) -> None:
        """What may be lost has changed since the round it was made for."""
        self._allowed, self._longest = tokens, []

    def _prepare(self) -> None:
        if self._longest:
            return
        outlook, expected = self._outlook, self._outlook.expected
        gain = outlook.gain(self._allowed, self._most)
        self._longest = gain.longest().tolist()
        self._rates = gain.rates().tolist()
        self._table = expected.table.tolist()
        self._mean = expected.mean
        self._curve = outlook.prices.curve.tolist()
        self._cost = outlook.prices.cost
        self._ahead = outlook.tuning.ahead
        self._steady = 0.0 if self._cost else outlook.tuning.steady

    @property
    def depth(self) -> int:
        """Tokens of the longest draft that it may allow."""
        self._prepare()
        return int(max(self._longest))

    def more(self, confidences: Sequence[float]) -> bool:
        """Whether to go on. The first token: if any length beats drafting nothing. Later ones: if
        continuing for up to ``ahead`` tokens beats stopping, at the rate that the draft set out
        for (to maximise a ratio is to maximise E[emitted] - rate * seconds at the best ratio).
        """
        self._prepare()
        k, first = len(confidences), bin_of(confidences[0])
        curve, table, longest = self._curve, self._table, self._longest[first]
        rate = self._rates[first]
        if k > longest or rate <= self._instead:
            return False
        if k == 1:
            return True
        reach = emitted = 1.0
        for confidence in confidences[:-1]:
            reach *= table[bin_of(confidence)]
            emitted += reach
        enough = emitted - rate * curve[k - 1]
        here = table[bin_of(confidences[-1])]
        later = self._mean + self._steady * max(0.0, here - self._mean)
        reach *= here
        extra = 0.0
        for longer in range(k, min(k + self._ahead, longest + 1)):
            emitted += reach
            if emitted - rate * (curve[longer] + extra) >= enough:
                return True
            extra += self._cost
            reach *= later
        return False

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether up to ``ahead`` more tokens of mean acceptance, each at the cost of a drafted
        token, would beat stopping here at the rate that the draft set out for.
        """
        self._prepare()
        k, first = len(confidences), bin_of(confidences[0])
        curve, rate = self._curve, self._rates[first]
        reach = 1.0
        for confidence in confidences:
            reach *= self._table[bin_of(confidence)]
        gained = paid = 0.0
        for longer in range(k + 1, min(k + 1 + self._ahead, self._longest[first] + 1)):
            reach *= self._mean
            gained += reach
            paid += self._cost
            if gained > rate * (curve[longer] - curve[k] + paid):
                return True
        return False


__all__ = ["GainPace"]
