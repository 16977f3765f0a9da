"""Counts of a reply as it grows, for the figures of one that is stopped or breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable

from localspec.core.emitted import Origin
from localspec.core.events import (
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
from localspec.core.round_counts import RoundCounts


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
        self._last_round: Round | None = None
        self._counts = RoundCounts()
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
                self._last_round = event
                self._counts.add(event)
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
        counts, last = self._counts, self._last_round
        speculation = last.speculation if last else Speculation("unknown", "nothing arrived")
        if any(token.origin is Origin.UNKNOWN for token in self._tokens):
            speculation = Speculation("unknown", "the server had not told when the reply ended")
        return Stats(
            prompt_tokens=self._reading.total,
            cached_tokens=self._reading.cached,
            emitted=len(self._tokens),
            rounds=counts.rounds,
            drafted=counts.drafted,
            verified=counts.verified,
            accepted=counts.accepted,
            per_position=counts.per_position,
            by_drafter=dict(counts.by_drafter),
            prompt_seconds=0.0,
            decode_seconds=self._last - self._began if self._arrives else counts.seconds,
            draft_seconds=counts.draft_seconds,
            verify_seconds=counts.verify_seconds,
            speculation=speculation,
            speedup=last.speedup if last else None,
            clock="request" if self._arrives else "engine",
        )
