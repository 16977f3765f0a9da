"""The outlooks of all drafters, computed again only where something has changed: most rounds of a
parked reply bring no evidence, and planning must cost less than anything that it could save.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.gain import Curve, Expected, GainTuning, Outlook, Prices, never_paid

_SAME = 0.02
"""Share by which the cost of a drafted token may differ from the one reckoned with."""
_EVERY = 16
"""Rounds after which an outlook is computed again in any case: other replies teach its drafter."""
_CURVES = 64
"""Curves whose prices are kept."""


class PriceList:
    """The prices of each drafter's drafts; those of an earlier round where little has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], tuple[Curve, Prices]] = {}

    def of(self, source: str, curve: Curve, breadth: int, cost: float) -> Prices:
        """Prices of drafts with ``breadth`` nodes at each depth."""
        key = source, id(curve), breadth
        if key in self._known:
            before, prices = self._known[key]
            if before is curve and abs(prices.cost - cost) <= _SAME * cost:
                return prices
        if len(self._known) >= _CURVES:
            self._known.clear()
        prices = Prices(curve[::breadth], cost)
        self._known[key] = curve, prices
        return prices


@dataclass(slots=True)
class _Known:
    text: AcceptanceEstimate
    version: int
    lengths: int
    made: int
    outlook: Outlook
    hopeless: bool | None = None


class Outlooks:
    """The newest outlook of each drafter in each running text."""

    def __init__(self, tuning: GainTuning) -> None:
        self._tuning = tuning
        self._known: dict[tuple[int, str], _Known] = {}

    def of(
        self, seq: int, source: str, text: AcceptanceEstimate, prices: Prices, now: int
    ) -> Outlook:
        """The outlook in round ``now``."""
        known, lengths = self._known.get((seq, source)), len(prices.costs)
        if (
            known is None
            or known.text is not text
            or known.version != text.version
            or known.lengths != lengths
            or now - known.made >= _EVERY
        ):
            outlook = Outlook(Expected(text, lengths), prices, self._tuning)
            known = _Known(text, text.version, lengths, now, outlook)
            self._known[seq, source] = known
        elif known.outlook.prices is not prices:
            known.outlook = Outlook(known.outlook.expected, prices, self._tuning)
            known.hopeless = None
        return known.outlook

    def newest(self, seq: int, source: str) -> Outlook | None:
        """The one of the last plan; None where none was planned with that drafter."""
        known = self._known.get((seq, source))
        return None if known is None else known.outlook

    def hopeless(self, seq: int, source: str) -> bool:
        """See `never_paid`, for the newest outlook."""
        known = self._known[seq, source]
        if known.hopeless is None:
            prices = known.outlook.prices
            known.hopeless = never_paid(known.text, prices.curve, prices.cost, self._tuning)
        return known.hopeless


__all__ = ["Outlooks", "PriceList"]
