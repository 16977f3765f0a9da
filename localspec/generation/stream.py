"""One reply in the making: rounds in, events out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Protocol

from localspec.core.events import FinishReason, Reply, ReplyEvent, Round, Speculation, Stats, Token
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import RequestState
from localspec.core.target import Target
from localspec.decode.request import Request
from localspec.decode.round import RoundResult, decode_round
from localspec.drafters.base import Drafter
from localspec.generation.detokenizer import TextStream
from localspec.policy import Policy
from localspec.verifiers import Verifier


def new_seed() -> int:
    """A seed for a request that brought none."""
    return secrets.randbits(32)


class Pieces(Protocol):
    """What an ending needs to know of a model."""

    @property
    def end_ids(self) -> frozenset[int]: ...
    def piece(self, token: int) -> bytes: ...


class StopCondition:
    """Decides with every emitted token whether the reply ends, and holds the text so far."""

    def __init__(self, model: Pieces, stop: tuple[str, ...]) -> None:
        self.model = model
        self.stream = TextStream(stop)
        self.texts: list[str] = []
        """One text a token, since the last `drain`."""

    def __call__(self, token: int) -> FinishReason | None:
        """Take one more token."""
        if token in self.model.end_ids:
            self.texts.append("")
            return "stop"
        self.texts.append(self.stream.feed(self.model.piece(token)))
        return "stop" if self.stream.stopped else None

    def drain(self, *, final: bool) -> list[str]:
        """The texts of the tokens since the last call; the last one with all that was held."""
        if final:
            rest = self.stream.finish()
            if self.texts:
                self.texts[-1] += rest
        texts, self.texts = self.texts, []
        return texts


class Generation:
    """A request, its text and its clock."""

    def __init__(
        self,
        *,
        seq: int,
        prompt: list[int],
        processor: LogitsProcessor,
        noise: Noise,
        limit: int,
        ending: StopCondition,
    ) -> None:
        self._n_prompt = len(prompt)
        self._ending = ending
        self._request = Request(
            seq, list(prompt), processor, noise, limit, ending, ending.model.end_ids
        )
        self._cached = 0
        self._began = self._decoding = time.perf_counter()
        self._ended: float | None = None
        self.last_verify = (0, 0.0)
        """Width and seconds of the last target pass."""

    @property
    def tokens(self) -> list[int]:
        """Prompt and emitted tokens."""
        return self._request.tokens

    @property
    def state(self) -> RequestState:
        """What a policy may know of it."""
        return self._request.state

    @property
    def finish(self) -> FinishReason | None:
        """Why it ended; None while it goes on."""
        return self._request.finish

    def start_reading(self, cached: int) -> None:
        """The prompt is being read, ``cached`` tokens of it need not be."""
        self._cached = cached
        self._began = time.perf_counter()

    def start_decoding(self) -> None:
        """The prompt is read."""
        self._decoding = time.perf_counter()

    def interrupt(self) -> None:
        """End it here, keeping what was emitted."""
        self._request.finish = "interrupt"

    def round(
        self, target: Target, drafter: Drafter, verifier: Verifier, policy: Policy
    ) -> Iterator[ReplyEvent]:
        """One round and its events."""
        (turn,) = decode_round([self._request], target, drafter, verifier, policy)
        self.last_verify = (1 + len(turn.draft), turn.verify_seconds)
        texts = self._ending.drain(final=self.finish is not None)
        for item, text in zip(turn.emitted, texts, strict=True):
            yield Token(item.token, text, item.origin, item.source)
        yield self._event(turn, policy.speculation)

    def _event(self, turn: RoundResult, speculation: Speculation) -> Round:
        return Round(
            drafted=len(turn.draft),
            verified=turn.verdict.verified,
            accepted=len(turn.verdict.path),
            emitted=len(turn.emitted),
            draft_seconds=turn.draft.seconds,
            verify_seconds=turn.verify_seconds,
            seconds=turn.seconds,
            source=turn.draft.source,
            context_used=len(self.tokens),
            speculation=speculation,
        )

    def reply(self, policy: Policy) -> Reply:
        """The whole of it."""
        now = time.perf_counter()
        self._ending.drain(final=True)
        tally, emitted = self._request.tally, self._request.emitted
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
                    hit / n for hit, n in zip(tally.accepted_at, tally.judged_at, strict=True)
                ),
                by_drafter=dict(tally.by_drafter),
                prompt_seconds=(self._decoding if read else now) - self._began,
                decode_seconds=decode_seconds,
                draft_seconds=tally.draft_seconds,
                verify_seconds=tally.verify_seconds,
                plain_tokens_per_second=1 / plain_seconds if plain_seconds else None,
                speculation=policy.speculation,
            ),
            seed=self._request.noise.seed,
        )


__all__ = ["Generation", "Pieces", "StopCondition", "new_seed"]
