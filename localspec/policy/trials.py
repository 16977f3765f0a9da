"""Drafts that do not pay by the known costs, to measure these again."""

from __future__ import annotations

import math

import numpy as np

from localspec.core.plan import RequestState
from localspec.policy.gain import Expected, Gain, Outlook, Prices
from localspec.policy.ledger import Key
from localspec.policy.parts import Parts


class Trials:
    """Says when a parked drafter drafts all the same, and by which prices."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._hopes: dict[str, tuple[Prices, tuple[float, float], Prices]] = {}
        """Drafter -> prices, how doubtful they were, and what they may be at best."""
        self._made: set[Key] = set()

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
        deepest = int(
            np.flatnonzero([-math.inf, *outlook.prices.losses] <= np.float64(bearable)).max()
        )
        if doubtful:
            deepest = min(deepest, tuning.trial)
        prices = Prices(hoped.curve[: deepest + 1], hoped.cost)
        found = Outlook(Expected(parts.estimates.text(state.seq, source), deepest), prices)
        if Gain(found, allowed, most).tokens() <= tuning.gain.margin:
            parts.probes.put_off(key, now)
            return None
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
