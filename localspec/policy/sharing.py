"""How several requests share the extra time of a pass that drafts make wider.

All requests of a round have one width, so a draft costs time for all of them, however many draft.
A request that drafts alone pays for the whole pass; when all draft, each pays for its own rows.
That maximises the tokens of all together. Besides, each request has a balance of what drafts have
cost and brought it, its own and those of others: nobody's draft may cost the others more than they
can lose and still be about as fast as without drafts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.policy.gain import Curve


@dataclass(frozen=True, slots=True)
class SharingTuning:
    """Constants of `Sharing`; balances are in rounds without drafts."""

    weight: float = 0.25
    """Weight of a round in how often a request drafts."""
    unknown: float = 0.5
    """How often a request drafts of which nothing is known."""
    steps: float = 4.0
    """Steps in which the number of others that draft is rounded, a request."""
    start: float = 0.4
    """Rounds that a request may lose to the drafts of others from its first token on."""
    share: float = 0.02
    """Further rounds that it may lose, as a share of its tokens so far."""
    most: float = 6.0
    """Largest balance."""


class Sharing:
    """Expects how many of the running requests draft, and keeps their balances."""

    def __init__(self, tuning: SharingTuning = SharingTuning()) -> None:
        self._tuning = tuning
        self._often: dict[int, float] = {}
        self._balance: dict[int, float] = {}
        self._running: Sequence[int] = ()
        self._curve: Curve = np.ones(1)
        self._charged: dict[float, Curve] = {}

    def begin(self, seq: int) -> None:
        """A reply begins in the sequence."""
        self._balance[seq] = self._tuning.start

    def among(self, running: Sequence[int], curve: Curve) -> None:
        """The sequences of the next round, and the cost of its pass by draft length."""
        self._running = running
        self._often = {seq: self._often.get(seq, self._tuning.unknown) for seq in running}
        self._balance = {seq: self._balance.get(seq, self._tuning.start) for seq in running}
        if self._curve is not curve:
            self._curve = curve
            self._charged = {}

    def drafted(self, seq: int, drafted: bool) -> None:
        """Whether a request drafted in a round."""
        before = self._often.get(seq, self._tuning.unknown)
        self._often[seq] = before + self._tuning.weight * (drafted - before)

    def factor(self, seq: int) -> float:
        """The request's charge for the extra time of a pass: the sum of what all requests lose,
        divided by the number of those that are expected to draft.
        """
        if len(self._running) < 2:
            return 1.0
        steps = self._tuning.steps
        others = sum(self._often[other] for other in self._running if other != seq)
        return len(self._running) / (1 + round(others * steps) / steps)

    def expected_factor(self, requests: int) -> float:
        """The same for an unknown request among ``requests`` of them."""
        return requests / (1 + self._tuning.unknown * (requests - 1))

    def charged(self, seq: int) -> Curve:
        """The curve for one request."""
        factor = self.factor(seq)
        if factor == 1.0:
            return self._curve
        if factor not in self._charged:
            self._charged[factor] = 1 + (self._curve - 1) * factor
        return self._charged[factor]

    def affordable(self, seq: int) -> float:
        """Largest charge of a draft of the request that the others can bear."""
        others = [self._balance[other] for other in self._running if other != seq]
        return self.factor(seq) * max(0.0, min(others)) if others else math.inf

    def settle(self, emitted: Mapping[int, int], longer: float, ends: float) -> None:
        """A round took ``longer`` than one without drafts, and ``emitted`` tokens in each
        sequence; ``ends`` is the share of a round that is saved when a request has ended.
        """
        tuning, more = self._tuning, sum(emitted.values()) - len(emitted)
        for seq, tokens in emitted.items():
            own = tokens - 1
            change = own + (more - own) * ends - longer + tuning.share * tokens
            balance = self._balance.get(seq, tuning.start) + change
            self._balance[seq] = min(tuning.most, balance)


__all__ = ["Sharing", "SharingTuning"]
