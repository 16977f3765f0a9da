"""Counts of a reply as it grows, for the figures of one that is stopped or breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable

from localspec.core.emitted import Origin
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

    def __init__(
        self,
        seed: int | None,
        *,
        arrives: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With ``arrives`` the times of rounds are not the engine's, so that the seconds are those
        since now, when the request is sent.
        """
        self._seed = seed
        self._arrives, self._clock = arrives, clock
        self._began = self._last = clock()
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
                self._last = self._clock()
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
        speculation = last.speculation if last else Speculation("unknown", "nothing arrived")
        if any(token.origin is Origin.UNKNOWN for token in self._tokens):
            speculation = Speculation("unknown", "the server had not told when the reply ended")
        seconds = sum(one.seconds for one in rounds)
        by_drafter: dict[str, DrafterStats] = {}
        for one in rounds:
            if one.drafted:
                found = DrafterStats(one.drafted, one.verified, one.accepted, one.draft_seconds)
                by_drafter[one.source] = by_drafter.get(one.source, DrafterStats()) + found
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
            decode_seconds=self._last - self._began if self._arrives else seconds,
            draft_seconds=sum(one.draft_seconds for one in rounds),
            verify_seconds=sum(one.verify_seconds for one in rounds),
            speculation=speculation,
            speedup=last.speedup if last else None,
            clock="request" if self._arrives else "engine",
        )
