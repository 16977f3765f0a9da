"""Counts and times of one request, for its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.core.events import DrafterStats
from localspec.core.values import GRAMMAR, Draft, Verdict

_ENOUGH = 4
"""Rounds without a draft from which the time of plain decoding is taken."""


@dataclass(slots=True)
class RequestStats:
    """Running counts of one request. ``accepted <= verified <= drafted``."""

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    verified_at: list[int] = field(default_factory=list)
    """By position in the draft."""
    accepted_at: list[int] = field(default_factory=list)
    """By position in the draft."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    round_seconds: float = 0.0
    plain_rounds: int = 0
    plain_seconds: float = 0.0
    plain_verify_seconds: float = 0.0
    """Target passes of the rounds without a draft."""
    overhead_seconds: float = 0.0
    """Planning, asking drafters and learning, which plain decoding is spared."""

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
            self.plain_rounds += 1
            self.plain_seconds += seconds
            self.plain_verify_seconds += verify_seconds
            return
        forced = len(draft.forced)
        kept = sum(node in draft.forced for node in verdict.path)
        if forced:
            self._count(GRAMMAR, forced, kept, kept, 0.0)
        if len(draft) > forced:
            own = (len(draft) - forced, verdict.verified - kept, accepted - kept)
            self._count(draft.source, *own, draft.seconds)
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
        was = self.by_drafter.get(source, DrafterStats())
        self.by_drafter[source] = DrafterStats(
            was.drafted + drafted,
            was.verified + verified,
            was.accepted + accepted,
            was.seconds + seconds,
        )

    def plain_token(
        self, expected: float | None, decode_seconds: float, emitted: int
    ) -> float | None:
        """Seconds per token of plain decoding: a target pass, and the time of this reply outside
        passes and drafts, per token. None where neither is known.

        ``expected`` is the policy's estimate of a round without a draft, if it measures. It
        includes the policy's own work, which plain decoding is spared.
        """
        if expected is None or not emitted:
            return self.plain_seconds / self.plain_rounds if self.plain_rounds else None
        if self.plain_rounds >= _ENOUGH:
            one = self.plain_verify_seconds / self.plain_rounds
        else:
            rounds = self.round_seconds - self.draft_seconds
            one = expected * (self.verify_seconds / rounds if rounds > 0 else 1.0)
        # Sampling, events and the rest are paid for every token, drafted or not.
        rest = decode_seconds - self.overhead_seconds - self.verify_seconds
        return one + max(0.0, rest) / emitted


__all__ = ["RequestStats"]
