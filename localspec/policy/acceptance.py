"""How often drafted tokens are accepted, by drafter, given the drafter's own confidence.

A confidence is a drafter's raw estimate in [0, 1] that its next token is accepted: the largest
probability of q, or a function of the length of an n-gram match. It is calibrated on what happened:
bins of confidence, each with decayed counts; one factor on the odds, common to all bins, that
follows the last twenty judged tokens of the text; and a caution term where few tokens were judged.
Texts differ by much more than confidences tell, and a text may change its kind in the middle, so
twenty tokens may well outweigh the bins, in both directions. A new text keeps the bins, which
describe the drafter, and resets the rest, which describes the text. A draft model of random
weights is unconfident and never used; a confident and wrong one is found out after a handful of
tokens.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Borders between the bins of confidence."""
BINS = len(EDGES) + 1
COMPUTED = (0.03, 0.12, 0.20, 0.26, 0.32, 0.40, 0.48, 0.58, 0.69, 0.77, 0.84, 0.89, 0.95)
"""Acceptance by bin of what a draft model computes: between texts of the target's own and texts
that neither model would write, measured with scripts/policy_lab on 144 replies (three drafts)."""
COPIED = (0.06, 0.14, 0.25, 0.34, 0.46, 0.63, 0.77, 0.86, 0.92, 0.93, 0.93, 0.95, 0.95)
"""Acceptance by bin of what is copied from the text, by length and number of matches: measured
with scripts/policy_lab on 144 replies (suffix and n-gram)."""


USUAL = (0.02, 0.13, 0.08, 0.08, 0.07, 0.06, 0.05, 0.055, 0.07, 0.055, 0.06, 0.07, 0.20)
"""Share of each bin of confidence among the tokens of draft models: measured in the same way."""


@dataclass(frozen=True, slots=True)
class AcceptanceTuning:
    """Constants of `AcceptanceEstimate`."""

    bin_decay: float = 0.98
    """Weight that a bin's evidence keeps with each new token in it: about fifty tokens count."""
    prior: float = 2.0
    """Tokens that the prior acceptance counts for in a bin."""
    expected: tuple[float, ...] = COMPUTED
    """Prior acceptance by bin."""
    text_decay: float = 0.95
    """The same for what describes a text: about twenty tokens count."""
    spread: float = 1.0
    """Standard deviation, between texts, of the logarithm of the odds of acceptance at the same
    confidence: 0.7 to 1.2 for three drafts in the laboratory."""
    caution: float = 0.2
    """Standard errors subtracted from an estimate that decides about drafting."""
    ceiling: float = 0.995
    """No estimate is higher."""
    carried: float = 0.2
    """Share of the confidence histograms that is carried over to the next text."""
    first_prior: float = 3.0
    """Tokens that `USUAL` counts for against the confidences that were seen."""
    unseen: float = 0.6
    """Acceptance of later tokens before any was judged."""


LATEST = 64
"""Verdicts that are kept for the figures of a reason: about as many as the bins rest on."""


def bin_of(confidence: float) -> int:
    """Index of a confidence's bin."""
    return bisect.bisect_right(EDGES, confidence)


def _bins() -> NDArray[np.float64]:
    return np.zeros(BINS)


def _verdicts() -> deque[bool]:
    return deque(maxlen=LATEST)


@dataclass(slots=True)
class AcceptanceEstimate:
    """Acceptance of one drafter under one kind of sampling. Arrays are (BINS,) decayed counts."""

    accepted: NDArray[np.float64] = field(default_factory=_bins)
    judged: NDArray[np.float64] = field(default_factory=_bins)
    first: NDArray[np.float64] = field(default_factory=_bins)
    """Decayed histogram of the confidence of first drafted tokens."""
    recent: NDArray[np.float64] = field(default_factory=_bins)
    """Decayed histogram of the confidence of all judged tokens. `judged` does not give it, because
    each of its bins decays at its own pace."""
    recent_accepted: float = 0.0
    """Decayed count of the last accepted tokens."""
    recent_expected: float = 0.0
    """Decayed count of the last tokens that the bins expected to be accepted."""
    recent_variance: float = 0.0
    """Decayed sum of p (1 - p) of the same tokens."""
    verdicts: deque[bool] = field(default_factory=_verdicts)
    """Whether each of the last judged tokens was accepted, of all texts: shared like the bins."""
    tuning: AcceptanceTuning = AcceptanceTuning()
    version: int = 0
    """Tokens learnt by this very object."""

    def learn(self, index: int, confidence: float, accepted: bool) -> None:
        """The ``index``-th token of a draft was judged; those before it were accepted."""
        self.version += 1
        self.verdicts.append(accepted)
        tuning, b = self.tuning, bin_of(confidence)
        prior, right = tuning.prior, tuning.expected[b]
        expected = (prior * right + self.accepted[b]) / (prior + self.judged[b])
        self.recent_accepted = accepted + tuning.text_decay * self.recent_accepted
        self.recent_expected = float(expected) + tuning.text_decay * self.recent_expected
        doubt = float(expected) * (1 - float(expected))
        self.recent_variance = doubt + tuning.text_decay * self.recent_variance
        self.judged[b] = 1 + tuning.bin_decay * self.judged[b]
        self.accepted[b] = accepted + tuning.bin_decay * self.accepted[b]
        self.recent *= tuning.text_decay
        self.recent[b] += 1
        if index == 0:
            self.first *= tuning.text_decay
            self.first[b] += 1

    def new_text(self) -> AcceptanceEstimate:
        """An estimate for another text, which may be of another kind. The bins, which describe the
        drafter, are shared: what either learns of them, both know.
        """
        carried = self.tuning.carried
        return AcceptanceEstimate(
            self.accepted,
            self.judged,
            first=self.first * carried,
            recent=self.recent * carried,
            verdicts=self.verdicts,
            tuning=self.tuning,
        )

    def usual_text(self) -> AcceptanceEstimate:
        """An estimate for a text of which nothing is known, to tell what drafting it may win."""
        text = self.new_text()
        text.first += self.tuning.first_prior * np.array(USUAL)
        text.recent += self.tuning.first_prior * np.array(USUAL)
        return text

    @property
    def evidence(self) -> float:
        """Decayed count of all judged tokens."""
        return float(self.judged.sum())

    def table(self, better: float = 0.0) -> list[float]:
        """(BINS,) estimates of acceptance by bin of confidence, in a text that is better than it is
        believed to be by so many standard deviations.
        """
        tuning, odds = self.tuning, self._odds_here()
        if better:
            odds *= math.exp(better * self.deviation)
        table = []  # plain numbers: so few are quicker without numpy
        for right, accepted, judged in zip(
            tuning.expected, self.accepted.tolist(), self.judged.tolist(), strict=True
        ):
            n = tuning.prior + judged
            p = (tuning.prior * right + accepted) / n
            p = p * odds / (1 - p + p * odds)
            p -= tuning.caution * math.sqrt(p * (1 - p) / n)
            table.append(min(max(p, 0.0), tuning.ceiling))
        return table

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of the odds of acceptance in this text, as far as it
        is known.
        """
        return 1 / math.sqrt(self.tuning.spread**-2 + self.recent_variance)

    def _odds_here(self) -> float:
        """Factor on the odds of acceptance in this text.

        The maximum of the posterior of its logarithm, by one step of Newton's method from 0; a
        priori it is normal around 0.
        """
        tuning = self.tuning
        precision = tuning.spread**-2 + self.recent_variance
        shift = (self.recent_accepted - self.recent_expected) / precision
        return math.exp(shift)

    def mean(self, table: Sequence[float]) -> float:
        """Acceptance by ``table`` of a token whose confidence is not known yet."""
        return float(self.recent @ table + self.tuning.unseen) / (float(self.recent.sum()) + 1)


__all__ = [
    "BINS",
    "COMPUTED",
    "COPIED",
    "EDGES",
    "LATEST",
    "USUAL",
    "AcceptanceEstimate",
    "AcceptanceTuning",
    "bin_of",
]
