"""Drafts that do not pay by the known costs, to measure these again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from localspec.core.plan import RequestState
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.gain import Expected, Gain, Outlook, Prices
from localspec.policy.ledger import Key
from localspec.policy.parts import Parts


@dataclass(frozen=True, slots=True)
class _Offer:
    """A trial that was found to pay, by hoped prices. Where nothing is drafted it is due again in
    the next round, and mostly the same.
    """

    prices: Prices
    text: AcceptanceEstimate
    version: int
    doubtful: bool
    """Whether it is short because nothing is known of the costs."""
    bearable: float
    """What it may lose by known costs."""
    longer: float
    """What a longer one would lose."""
    allowed: float
    most: float
    outlook: Outlook

    def stands(
        self, prices: Prices, text: AcceptanceEstimate, bearable: float, *, doubtful: bool
    ) -> bool:
        """Whether drafts of the same lengths would be weighed again, at the same prices."""
        return (
            self.prices is prices
            and self.text is text
            and self.version == text.version
            and self.doubtful == doubtful
            and (bearable == self.bearable or self.bearable <= bearable < self.longer)
        )


class Trials:
    """Says when a parked drafter drafts all the same, and by which prices."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._hopes: dict[str, tuple[Prices, tuple[float, float], Prices]] = {}
        """Drafter -> prices, how doubtful they were, and what they may be at best."""
        self._made: set[Key] = set()
        self._offers: dict[tuple[int, str], _Offer] = {}
        """The last trial by sequence and drafter."""

    def begin_round(self) -> None:
        """Forget the trials of the last round."""
        self._made.clear()

    def made(self, key: Key) -> bool:
        """Whether the drafter drafts in this round as a trial."""
        return key in self._made

    def hoped(self, source: str, prices: Prices) -> Prices:
        """Prices as low as they may well be: never confirmed, of a disturbed sweep, of a machine
        that has got faster.
        """
        parts = self._parts
        tuning = parts.tuning
        doubts = parts.passes.doubt, parts.passes.draft_doubt(source)
        known = self._hopes.get(source)
        if known is not None and known[0] is prices and known[1] == doubts:
            return known[2]
        factor = min(tuning.faster, tuning.hope(doubts[0]))
        hoped = Prices(1 + factor * (prices.curve - 1), prices.cost * tuning.hope(doubts[1]))
        self._hopes[source] = prices, doubts, hoped
        return hoped

    def trial(
        self, state: RequestState, source: str, outlook: Outlook, allowed: float, most: float
    ) -> Outlook | None:
        """The outlook by which a drafter drafts that does not pay by the known costs, where such a
        draft is due: it measures them again.
        """
        parts = self._parts
        tuning, key, now = parts.tuning, (source, state.sampling), parts.planned.number
        doubtful = parts.doubtful
        if not parts.probes.may_try(key, now, soon=doubtful):
            return None
        hoped = self.hoped(source, outlook.prices)
        copied = source in parts.free and not doubtful
        bearable = tuning.bearable * state.emitted if copied else math.inf
        text, known = parts.estimates.text(state.seq, source), self._offers.get((state.seq, source))
        if (
            known is not None
            and allowed >= known.allowed  # what may be lost only makes it pay more
            and most >= known.most
            and known.stands(hoped, text, bearable, doubtful=doubtful)
        ):
            self._made.add(key)
            return known.outlook
        losses = outlook.prices.losses
        deepest = 1 + int(np.flatnonzero(losses <= bearable).max(initial=-1))
        if doubtful:
            deepest = min(deepest, tuning.trial)
        prices = Prices(hoped.curve[: deepest + 1], hoped.cost)
        found = Outlook(Expected(text, deepest), prices)
        if Gain(found, allowed, most).tokens() <= tuning.gain.margin:
            parts.probes.put_off(key, now)
            return None
        longer = float(losses[losses > bearable].min(initial=math.inf))
        self._offers[state.seq, source] = _Offer(
            hoped, text, text.version, doubtful, bearable, longer, allowed, most, found
        )
        self._made.add(key)
        return found

    def of_copied(
        self, state: RequestState, source: str, outlook: Outlook, allowed: float, most: float
    ) -> Outlook:
        """The outlook by which a drafter that copies drafts: by the known costs unless too few
        passes have confirmed them.
        """
        parts = self._parts
        if not parts.unconfirmed:
            return outlook
        return self.trial(state, source, outlook, allowed, most) or outlook


__all__ = ["Trials"]
