"""How often drafted tokens are accepted, by drafter, given the drafter's own confidence.

A confidence is a drafter's raw estimate in [0, 1] that its next token is accepted: the largest
probability of q, or a function of the length of an n-gram match. It is calibrated on what happened:
bins of confidence with decayed counts describe the drafter, in all texts; one factor on the odds of
all bins, which follows the last twenty judged tokens, describes the text. Texts differ by much more
than confidences tell, and may change in the middle, so twenty tokens may well outweigh the bins.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

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
BIN_DECAY = 0.98
"""Weight that a bin's evidence keeps with each new token in it: about fifty tokens count."""
TEXT_DECAY = 0.95
"""The same for what describes a text: about twenty tokens count."""
CARRIED = 3.0
"""Tokens that confidences of earlier texts, or the usual ones, count for in a new text."""
LATEST = 64
"""Verdicts that are kept for the figures of a reason: about as many as the bins rest on."""


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """What is known beforehand of a kind of drafter."""

    expected: tuple[float, ...]
    """Acceptance by bin of confidence."""
    prior: float
    """Tokens that it counts for in a bin."""
    spread: float
    """Standard deviation, between texts, of the logarithm of the odds of acceptance at the same
    confidence: measured in the laboratory, 0.7 to 1.2 for three draft models."""


COMPUTES = DrafterKind(COMPUTED, prior=2.0, spread=1.0)
COPIES = DrafterKind(COPIED, prior=8.0, spread=0.5)


def bin_of(confidence: float) -> int:
    """Index of a confidence's bin."""
    return bisect.bisect_right(EDGES, confidence)


@dataclass(slots=True)
class AcceptanceEstimate:
    """Acceptance of one drafter under one kind of sampling. Lists are (BINS,) decayed counts."""

    accepted: list[float] = field(default_factory=lambda: [0.0] * BINS)
    judged: list[float] = field(default_factory=lambda: [0.0] * BINS)
    seen: list[float] = field(default_factory=lambda: [0.0] * BINS)
    """Decayed histogram of the confidence of judged tokens in this text; the bins of `judged` decay
    each at its own pace."""
    surprise: float = 0.0
    """Decayed count of the last accepted tokens, less that of those the bins expected to be."""
    variance: float = 0.0
    """Decayed sum of p (1 - p) of the same tokens."""
    verdicts: deque[bool] = field(default_factory=lambda: deque(maxlen=LATEST))
    """Whether each of the last judged tokens was accepted, of all texts: shared like the bins."""
    kind: DrafterKind = COMPUTES
    compared: int = 0
    right: int = 0
    """Tokens of this text that were compared with those emitted, and those that were right."""

    def learn(self, confidence: float, accepted: bool) -> None:
        """A drafted token was judged; those before it in its draft were accepted."""
        self.compared += 1
        self.right += accepted
        self.verdicts.append(accepted)
        b = bin_of(confidence)
        prior = self.kind.prior
        p = (prior * self.kind.expected[b] + self.accepted[b]) / (prior + self.judged[b])
        self.surprise = accepted - p + TEXT_DECAY * self.surprise
        self.variance = p * (1 - p) + TEXT_DECAY * self.variance
        self.judged[b] = 1 + BIN_DECAY * self.judged[b]
        self.accepted[b] = accepted + BIN_DECAY * self.accepted[b]
        self.seen = [TEXT_DECAY * count for count in self.seen]
        self.seen[b] += 1

    def new_text(self) -> AcceptanceEstimate:
        """An estimate for another text. The bins are shared: what either learns, both know."""
        scale = min(1.0, CARRIED / max(1.0, sum(self.seen)))
        seen = [scale * count for count in self.seen]
        return AcceptanceEstimate(
            self.accepted, self.judged, seen, verdicts=self.verdicts, kind=self.kind
        )

    def usual_text(self) -> AcceptanceEstimate:
        """An estimate for a text of which nothing is known, to tell what drafting it may win."""
        text = self.new_text()
        text.seen = [count + CARRIED * share for count, share in zip(text.seen, USUAL, strict=True)]
        return text

    def table(self, better: float = 0.0) -> list[float]:
        """(BINS,) acceptance by bin of confidence, in a text better than believed by so many
        deviations. The factor's logarithm is normal a priori, around 0; one step of Newton's method
        from there finds the maximum of its posterior.
        """
        deviation = self.deviation
        odds = math.exp(self.surprise * deviation**2 + better * deviation)
        prior = self.kind.prior
        known = zip(self.kind.expected, self.accepted, self.judged, strict=True)
        more = odds - 1  # p odds / (1 - p + p odds), where p = right / n
        return [
            (right := prior * usual + accepted) * odds / (prior + judged + right * more)
            for usual, accepted, judged in known
        ]

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of the odds in this text, as far as it is known."""
        return 1 / math.sqrt(self.kind.spread**-2 + self.variance)

    def mean(self, table: Sequence[float]) -> float:
        """Acceptance by ``table`` of a token whose confidence is not known yet."""
        found = sum((n + share) * p for n, share, p in zip(self.seen, USUAL, table, strict=True))
        return found / (sum(self.seen) + 1)
