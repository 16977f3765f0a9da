"""Counts and times of one request, for its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.core.events import DrafterStats
from localspec.core.values import GRAMMAR, Draft, Verdict


@dataclass(slots=True)
class RequestStats:
    """Running counts of one request. ``accepted <= verified <= drafted``."""

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    verified_at: list[int] = field(default_factory=list)
    """Counts by position in the draft."""
    accepted_at: list[int] = field(default_factory=list)
    """Counts by position in the draft."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    round_seconds: float = 0.0

    def add(self, draft: Draft, verdict: Verdict, verify_seconds: float, seconds: float) -> None:
        """Count one round."""
        accepted = len(verdict.path)
        self.rounds += 1
        self.drafted += len(draft)
        self.verified += verdict.verified
        self.accepted += accepted
        self.draft_seconds += draft.seconds
        self.verify_seconds += verify_seconds
        self.round_seconds += seconds
        if not len(draft):
            return
        forced = len(draft.forced)
        kept = len(draft.forced.intersection(verdict.path))
        if forced:
            self._count(GRAMMAR, forced, kept, kept, 0.0)
        if len(draft) > forced:
            own = (len(draft) - forced, verdict.verified - kept, accepted - kept)
            self._count(draft.source, *own, draft.own_seconds)
        verified = verdict.verified if draft.is_chain else accepted
        while len(self.verified_at) < verified:
            self.verified_at.append(0)
            self.accepted_at.append(0)
        for i in range(verified):
            self.verified_at[i] += 1
            self.accepted_at[i] += i < accepted

    def _count(
        self, source: str, drafted: int, verified: int, accepted: int, seconds: float
    ) -> None:
        found = DrafterStats(drafted, verified, accepted, seconds)
        self.by_drafter[source] = self.by_drafter.get(source, DrafterStats()) + found
