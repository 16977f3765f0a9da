"""What is counted while a reply is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.core.events import DrafterStats
from localspec.core.values import Draft, Verdict

_ENOUGH = 4
"""Rounds without a draft that tell what plain decoding takes."""


@dataclass(slots=True)
class RequestStats:
    """Running counts of one request. ``accepted <= verified <= drafted``."""

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    judged_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    round_seconds: float = 0.0
    plain_rounds: int = 0
    plain_seconds: float = 0.0
    plain_verify_seconds: float = 0.0
    """Of the rounds without a draft, the target's passes."""
    beside_seconds: float = 0.0
    """What plain decoding would not do: planning, asking drafters, learning."""

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
        was = self.by_drafter.get(draft.source, DrafterStats())
        self.by_drafter[draft.source] = DrafterStats(
            was.drafted + len(draft),
            was.verified + verdict.verified,
            was.accepted + accepted,
            was.seconds + draft.seconds,
        )
        judged = verdict.verified if draft.is_chain else accepted
        while len(self.judged_at) < judged:
            self.judged_at.append(0)
            self.accepted_at.append(0)
        for i in range(judged):
            self.judged_at[i] += 1
            self.accepted_at[i] += i < accepted

    def plain_token(
        self, booked: float | None, decode_seconds: float, emitted: int
    ) -> float | None:
        """Seconds of a token by plain decoding: its pass, and what each token of this reply took
        beside passes and drafts. None where neither is known.

        ``booked`` is what the policy expects of a round without a draft now, if it measures. That
        has work of its own in it, which plain decoding is spared.
        """
        if booked is None or not emitted:
            return self.plain_seconds / self.plain_rounds if self.plain_rounds else None
        if self.plain_rounds >= _ENOUGH:
            one = self.plain_verify_seconds / self.plain_rounds
        else:
            rounds = self.round_seconds - self.draft_seconds
            one = booked * (self.verify_seconds / rounds if rounds > 0 else 1.0)
        # Sampling, events and the rest are paid for every token, drafted or not.
        rest = decode_seconds - self.beside_seconds - self.verify_seconds
        return one + max(0.0, rest) / emitted


__all__ = ["RequestStats"]
