"""How often drafted tokens stand, by drafter, from the drafter's own confidence.

Confidence is a drafter's guess in [0, 1] that its next token will stand: the largest probability of
q, the length of an n-gram match. It is raw, so it is calibrated on what happened: bins of
confidence, each with decayed counts, and one common factor that lets every bin learn from the first
few judgements in any of them. A draft model of random weights is unconfident and never used; one
that is sure and wrong is found out after a handful of tokens.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Borders between the bins of confidence."""
_DECAY = 0.98
"""What remains of a bin's evidence after each new judgement in it: about fifty count."""
_POOL_DECAY = 0.97
_WEIGHT = 2.0
"""Judgements that the expectation of a bin counts for."""
_POOL_WEIGHT = 3.0
"""Judgements that trust in the raw confidence counts for."""
_MOST = 0.995
"""No bin is believed beyond this."""


def bin_of(confidence: float) -> int:
    """Index of a confidence's bin."""
    return bisect.bisect_right(EDGES, confidence)


_MIDDLES = tuple((low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))


@dataclass(slots=True)
class Survival:
    """Of one drafter under one kind of sampling."""

    stood: list[float] = field(default_factory=lambda: [0.0] * len(_MIDDLES))
    """Decayed count of tokens that stood, by bin."""
    judged: list[float] = field(default_factory=lambda: [0.0] * len(_MIDDLES))
    first: list[float] = field(default_factory=lambda: [0.0] * len(_MIDDLES))
    """Decayed count of first tokens of a draft, by bin: how often there is which confidence."""
    pool: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Decayed sums over all bins: tokens that stood, and what raw confidence had expected."""

    def learn(self, index: int, confidence: float, stood: bool) -> None:
        """The ``index``-th token of a draft was judged; those before it stood."""
        b = bin_of(confidence)
        self.judged[b] = 1 + _DECAY * self.judged[b]
        self.stood[b] = stood + _DECAY * self.stood[b]
        self.pool[0] = stood + _POOL_DECAY * self.pool[0]
        self.pool[1] = confidence + _POOL_DECAY * self.pool[1]
        if index == 0:
            for i in range(len(self.first)):
                self.first[i] *= _POOL_DECAY
            self.first[b] += 1

    @property
    def evidence(self) -> float:
        """Judgements that still count."""
        return sum(self.judged)

    def table(self) -> list[float]:
        """Expected survival by bin of confidence."""
        trust = (_POOL_WEIGHT + self.pool[0]) / (_POOL_WEIGHT + self.pool[1])
        return [
            min(_MOST, (_WEIGHT * min(1.0, trust * middle) + stood) / (_WEIGHT + judged))
            for middle, stood, judged in zip(_MIDDLES, self.stood, self.judged, strict=True)
        ]

    def mean(self) -> float:
        """Expected survival of a token whose confidence is not known yet."""
        table, weights = self.table(), self.judged
        total = sum(weights)
        if total <= 0:
            return 0.6
        return sum(s * w for s, w in zip(table, weights, strict=True)) / total

    def firsts(self) -> Sequence[float]:
        """Share of each bin among the first tokens of drafts; empty before any was seen."""
        total = sum(self.first)
        return [n / total for n in self.first] if total > 0 else ()
