"""How often drafted tokens stand, by drafter, from the drafter's own confidence.

Confidence is a drafter's guess in [0, 1] that its next token will stand: the largest probability of
q, the length of an n-gram match. It is raw, so it is calibrated on what happened: bins of
confidence, each with decayed counts; one factor of trust, common to all bins, that follows the last
ten judgements, since texts change their kind in the middle; and a little caution where few were
seen. A draft model of random weights is unconfident and never used; one that is sure and wrong is
found out after a handful of tokens.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Borders between the bins of confidence."""
_DECAY = 0.98
"""What remains of a bin's evidence after each new judgement in it: about fifty count."""
_FIRST_DECAY = 0.93
_WEIGHT = 2.0
"""Judgements that the raw confidence counts for in a bin."""
_TRUST_DECAY = 0.9
_TRUST_WEIGHT = 3.0
"""Judgements that the long experience counts for against the last ten."""
_CAUTION = 0.5
"""Standard errors that are taken off: unsure is less than sure."""
_MOST = 0.995
"""No bin is believed beyond this."""


def bin_of(confidence: float) -> int:
    """Index of a confidence's bin."""
    return bisect.bisect_right(EDGES, confidence)


_MIDDLES = tuple((low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))


def _bins() -> list[float]:
    return [0.0] * len(_MIDDLES)


@dataclass(slots=True)
class Survival:
    """Of one drafter under one kind of sampling."""

    stood: list[float] = field(default_factory=_bins)
    """Decayed count of tokens that stood, by bin."""
    judged: list[float] = field(default_factory=_bins)
    first: list[float] = field(default_factory=_bins)
    """Decayed count of first tokens of a draft, by bin: how often there is which confidence."""
    recent: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Over the last judgements: tokens that stood, and what the bins had expected."""

    def learn(self, index: int, confidence: float, stood: bool) -> None:
        """The ``index``-th token of a draft was judged; those before it stood."""
        b = bin_of(confidence)
        expected = self._calibrated(b)
        self.recent[0] = stood + _TRUST_DECAY * self.recent[0]
        self.recent[1] = expected + _TRUST_DECAY * self.recent[1]
        self.judged[b] = 1 + _DECAY * self.judged[b]
        self.stood[b] = stood + _DECAY * self.stood[b]
        if index == 0:
            for i in range(len(self.first)):
                self.first[i] *= _FIRST_DECAY
            self.first[b] += 1

    @property
    def evidence(self) -> float:
        """Judgements that still count."""
        return sum(self.judged)

    def _calibrated(self, b: int) -> float:
        return (_WEIGHT * _MIDDLES[b] + self.stood[b]) / (_WEIGHT + self.judged[b])

    @property
    def _trust(self) -> float:
        """How the last judgements compare with long experience; texts change their kind."""
        return min(1.0, (_TRUST_WEIGHT + self.recent[0]) / (_TRUST_WEIGHT + self.recent[1]))

    def table(self) -> list[float]:
        """Survival by bin of confidence, cautiously."""
        trust = self._trust
        found = []
        for b, judged in enumerate(self.judged):
            s = trust * self._calibrated(b)
            s -= _CAUTION * math.sqrt(s * (1 - s) / (_WEIGHT + judged))
            found.append(max(0.0, min(_MOST, s)))
        return found

    def mean(self) -> float:
        """Survival of a token whose confidence is not known yet."""
        table, weights = self.table(), self.judged
        total = sum(weights)
        if total <= 0:
            return 0.6
        return sum(s * w for s, w in zip(table, weights, strict=True)) / total

    def firsts(self) -> Sequence[float]:
        """Share of each bin among the first tokens of drafts; empty before any was seen."""
        total = sum(self.first)
        return [n / total for n in self.first] if total > 0 else ()
