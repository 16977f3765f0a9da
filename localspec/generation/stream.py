"""One reply being generated: rounds in, events out."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

from localspec.core.events import FinishReason, Reply, ReplyEvent, Round, Speculation, Stats, Token
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import RequestState
from localspec.decode.request import MATCH, Request, StopRule
from localspec.decode.round import RoundResult
from localspec.generation.detokenizer import TextStream
from localspec.policy import Policy
from localspec.verifiers import Verifier


def new_seed() -> int:
    """A random seed for a request without one."""
    return secrets.randbits(32)


class Pieces(Protocol):
    """Turns tokens into bytes, and knows which end a reply."""

    @property
    def end_ids(self) -> frozenset[int]: ...
    def piece(self, token: int) -> bytes: ...


class StopCondition(StopRule):
    """Ends a reply at the model's end tokens or a stop string, and builds its text."""

    def __init__(self, model: Pieces, stop: tuple[str, ...]) -> None:
        self._model = model
        self.end_ids = model.end_ids
        self.stream = TextStream(stop)

    def take(self, token: int) -> tuple[str, FinishReason | None]:
        """See `StopRule.take`."""
        if token in self.end_ids:
            return "", "stop"
        text = self.stream.feed(self._model.piece(token))
        return text, "stop" if self.stream.stopped else None

    def finish(self) -> str:
        """See `StopRule.finish`."""
        return self.stream.finish()


class Generation:
    """A request with its text and its times."""

    def __init__(
        self,
        *,
        seq: int,
        prompt: list[int],
        processor: LogitsProcessor,
        noise: Noise,
        limit: int,
        ending: StopCondition,
        verifier: Verifier = MATCH,
        policy: Policy | None = None,
        guided: bool = True,
    ) -> None:
        self._n_prompt = len(prompt)
        self._ending = ending
        self.request = Request(
            seq, list(prompt), processor, noise, limit, ending, verifier, policy, guided
        )
        self._cached = 0
        self._began = self._decoding = time.perf_counter()

    @property
    def tokens(self) -> list[int]:
        """Prompt and emitted tokens."""
        return self.request.tokens

    @property
    def state(self) -> RequestState:
        """What the policy is told of it."""
        return self.request.state

    @property
    def finish(self) -> FinishReason | None:
        """Why it ended; None while it runs."""
        return self.request.finish

    @property
    def seq(self) -> int:
        """Its sequence of the KV cache."""
        return self.request.seq

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were cached already."""
        return self._cached

    def start_reading(self, cached: int) -> None:
        """Prefill begins; ``cached`` tokens of the prompt are in the KV cache already."""
        self._cached = cached
        self._began = time.perf_counter()

    def start_decoding(self) -> None:
        """Prefill is over."""
        self._decoding = time.perf_counter()

    def interrupt(self) -> None:
        """End the reply here; emitted tokens stay."""
        self.request.finish = "interrupt"

    def events(self, result: RoundResult, speculation: Speculation) -> list[ReplyEvent]:
        """The events of one of its rounds."""
        tokens = [Token(item.token, item.text, item.origin, item.source) for item in result.emitted]
        return [*tokens, self._event(result, speculation)]

    def _event(self, result: RoundResult, speculation: Speculation) -> Round:
        return Round(
            drafted=len(result.draft),
            verified=result.verdict.verified,
            accepted=len(result.verdict.path),
            emitted=len(result.emitted),
            draft_seconds=result.draft.seconds,
            verify_seconds=result.verify_seconds,
            seconds=result.seconds,
            source=result.draft.source,
            context_used=len(self.tokens),
            speculation=speculation,
        )

    def reply(self, policy: Policy) -> Reply:
        """The whole reply."""
        now = time.perf_counter()
        self._ending.finish()  # an interrupted reply may still hold text back
        tally, emitted = self.request.tally, self.request.emitted
        read = self._decoding > self._began
        decode_seconds = now - self._decoding if read else 0.0
        one = policy.costs.verify(1) if policy.costs else None
        plain_seconds = tally.plain_token(one, decode_seconds, len(emitted))
        return Reply(
            text=self._ending.stream.text,
            tokens=tuple(e.token for e in emitted),
            origins=tuple(e.origin for e in emitted),
            finish_reason=self.finish or "interrupt",
            stats=Stats(
                prompt_tokens=self._n_prompt,
                cached_tokens=self._cached,
                emitted=len(emitted),
                rounds=tally.rounds,
                drafted=tally.drafted,
                verified=tally.verified,
                accepted=tally.accepted,
                per_position=tuple(
                    hit / n for hit, n in zip(tally.accepted_at, tally.verified_at, strict=True)
                ),
                by_drafter=dict(tally.by_drafter),
                prompt_seconds=(self._decoding if read else now) - self._began,
                decode_seconds=decode_seconds,
                draft_seconds=tally.draft_seconds,
                verify_seconds=tally.verify_seconds,
                plain_tokens_per_second=1 / plain_seconds if plain_seconds else None,
                speculation=policy.speculation,
            ),
            seed=self.request.noise.seed,
        )


__all__ = ["Generation", "Pieces", "StopCondition", "new_seed"]
