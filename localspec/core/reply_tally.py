"""Counts of a reply as it grows, for the figures of one that is stopped or breaks off."""

from __future__ import annotations

from localspec.core.events import (
    DrafterStats,
    Finished,
    FinishReason,
    Reading,
    Reply,
    ReplyEvent,
    Round,
    Speculation,
    Stats,
    Token,
)


class ReplyTally:
    """Takes the events of a reply as they come."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._tokens: list[Token] = []
        self._rounds: list[Round] = []
        self._reading = Reading(0, 0, 0)

    @property
    def begun(self) -> bool:
        """Whether any token has arrived."""
        return bool(self._tokens)

    def take(self, event: ReplyEvent) -> None:
        """Count an event."""
        match event:
            case Token():
                self._tokens.append(event)
            case Round():
                self._rounds.append(event)
            case Reading():
                self._reading = event

    def finished(self, reason: FinishReason) -> Finished:
        """The end of a reply that is stopped now."""
        return Finished(
            Reply(
                text="".join(token.text for token in self._tokens),
                tokens=tuple(token.token for token in self._tokens),
                origins=tuple(token.origin for token in self._tokens),
                finish_reason=reason,
                stats=self._stats(),
                seed=self._seed or 0,
            )
        )

    def _stats(self) -> Stats:
        rounds, last = self._rounds, self._rounds[-1] if self._rounds else None
        by_drafter: dict[str, DrafterStats] = {}
        for one in rounds:
            if one.drafted:
                was = by_drafter.get(one.source, DrafterStats())
                by_drafter[one.source] = DrafterStats(
                    was.drafted + one.drafted,
                    was.verified + one.verified,
                    was.accepted + one.accepted,
                    was.seconds + one.draft_seconds,
                )
        return Stats(
            prompt_tokens=self._reading.total,
            cached_tokens=self._reading.cached,
            emitted=len(self._tokens),
            rounds=len(rounds),
            drafted=sum(one.drafted for one in rounds),
            verified=sum(one.verified for one in rounds),
            accepted=sum(one.accepted for one in rounds),
            per_position=(),
            by_drafter=by_drafter,
            prompt_seconds=0.0,
            decode_seconds=sum(one.seconds for one in rounds),
            draft_seconds=sum(one.draft_seconds for one in rounds),
            verify_seconds=sum(one.verify_seconds for one in rounds),
            speculation=last.speculation if last else Speculation("unknown", "nothing arrived"),
            speedup=last.speedup if last else None,
        )


__all__ = ["ReplyTally"]
