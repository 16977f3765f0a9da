"""How often drafted tokens stand, by drafter, from the drafter's own confidence.

Confidence is a drafter's guess in [0, 1] that its next token will stand: the largest probability of
q, the length of an n-gram match. It is raw, so it is calibrated on what happened: bins of
confidence, each with decayed counts; one factor of trust, common to all bins, that follows the last
ten judgements, since texts change their kind in the middle; and a little caution where few were
seen. Another text starts with the bins alone: what they learnt is about the drafter, the rest is
about the text. A draft model of random weights is unconfident and never used; one that is sure and
wrong is found out after a handful of tokens.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Borders between the bins of confidence."""
BINS = len(EDGES) + 1
_MIDDLES = np.array(
    [(low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True)]
)
_DECAY = 0.98
"""What remains of a bin's evidence after each new judgement in it: about fifty count."""
_FIRST_DECAY = 0.93
_LATELY_DECAY = 0.96
_WEIGHT = 2.0
"""Judgements that the raw confidence counts for in a bin."""
_TRUST_DECAY = 0.9
_TRUST_WEIGHT = 3.0
"""Judgements that the long experience counts for against the last ten."""
_CAUTION = 0.2
"""Standard errors that are taken off: unsure is less than sure."""
_MOST = 0.995
"""No bin is believed beyond this."""
_HOPE = 1.0
"""Standard errors that are added where the question is whether it could be any good."""
_CARRIED = 0.2
"""Of how often there was which confidence, what is believed of the next text."""
_UNKNOWN = 0.6
"""AcceptanceEstimate of later tokens before anything was seen."""


def bin_of(confidence: float) -> int:
    """Index of a confidence's bin."""
    return bisect.bisect_right(EDGES, confidence)


def _bins() -> NDArray[np.float64]:
    return np.zeros(BINS)


@dataclass(slots=True)
class AcceptanceEstimate:
    """Of one drafter under one kind of sampling. Arrays are (BINS,) decayed counts."""

    stood: NDArray[np.float64] = field(default_factory=_bins)
    judged: NDArray[np.float64] = field(default_factory=_bins)
    first: NDArray[np.float64] = field(default_factory=_bins)
    """First tokens of a draft: how often there is which confidence lately."""
    lately: NDArray[np.float64] = field(default_factory=_bins)
    """The same of all tokens that came to be judged. The bins' own counts do not tell: each
    forgets at its own pace."""
    recent_stood: float = 0.0
    recent_expected: float = 0.0
    """Over the last judgements: how many stood, and how many the bins had expected."""

    def learn(self, index: int, confidence: float, stood: bool) -> None:
        """The ``index``-th token of a draft was judged; those before it stood."""
        b = bin_of(confidence)
        expected = (_WEIGHT * _MIDDLES[b] + self.stood[b]) / (_WEIGHT + self.judged[b])
        self.recent_stood = stood + _TRUST_DECAY * self.recent_stood
        self.recent_expected = float(expected) + _TRUST_DECAY * self.recent_expected
        self.judged[b] = 1 + _DECAY * self.judged[b]
        self.stood[b] = stood + _DECAY * self.stood[b]
        self.lately *= _LATELY_DECAY
        self.lately[b] += 1
        if index == 0:
            self.first *= _FIRST_DECAY
            self.first[b] += 1

    def new_text(self) -> None:
        """What comes may be of another kind than what was."""
        self.first *= _CARRIED
        self.lately *= _CARRIED
        self.recent_stood = self.recent_expected = 0.0

    @property
    def evidence(self) -> float:
        """Judgements that still count."""
        return float(self.judged.sum())

    def table(self) -> NDArray[np.float64]:
        """(BINS,) survival by bin of confidence, cautiously."""
        s = self._calibrated()
        s *= min(1.0, (_TRUST_WEIGHT + self.recent_stood) / (_TRUST_WEIGHT + self.recent_expected))
        s -= _CAUTION * np.sqrt(s * (1 - s) / (_WEIGHT + self.judged))
        return s.clip(0.0, _MOST, out=s)

    def hoped(self) -> NDArray[np.float64]:
        """(BINS,) the same with good luck, in a text that it is made for."""
        s = self._calibrated()
        s += _HOPE * np.sqrt(s * (1 - s) / (_WEIGHT + self.judged))
        return s.clip(0.0, _MOST, out=s)

    def _calibrated(self) -> NDArray[np.float64]:
        return (_WEIGHT * _MIDDLES + self.stood) / (_WEIGHT + self.judged)

    def mean(self, table: NDArray[np.float64]) -> float:
        """AcceptanceEstimate of a token whose confidence is not known yet, by ``table``."""
        return float(table @ self.lately + _UNKNOWN) / (float(self.lately.sum()) + 1)
