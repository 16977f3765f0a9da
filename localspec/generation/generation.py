"""One reply that has a sequence: rounds in, events out, until it is over."""

from __future__ import annotations

import dataclasses
import time

from localspec.core.events import (
    FinishReason,
    Reading,
    Reply,
    ReplyEvent,
    Round,
    Speculation,
    Speedup,
    Stats,
    Token,
)
from localspec.decode.round import RoundResult
from localspec.decode.speedup import SpeedupEstimate
from localspec.drafters.base import Drafter
from localspec.generation.prepared import Prepared
from localspec.generation.reply_job import Job
from localspec.policy import Policy
from localspec.policy.simple import Plain

_READS_FIRST = Plain(
    "the first token is decoded before the draft reads the end of the prompt",
    "the draft reads after the first token",
    state="parked",
)
"""Plans the first round of replies whose drafter has not read the prompt."""
_TYPED = Plain(
    "the first token is decoded alone, since somebody who types waits for it",
    "the first token is decoded alone",
    state="parked",
)
"""Plans the first round of replies to somebody who types: a draft would make its pass longer."""


_NO_ROUND = Speculation("parked", "the reply ended before its first round", "no round was needed")


class Generation:
    """A job that was admitted: its sequence, its text and its times."""

    def __init__(
        self, job: Job, prepared: Prepared, seq: int, drafter: Drafter, policy: Policy
    ) -> None:
        """``drafter`` reads the prompt along; ``policy`` plans the drafts: the job's own, or the
        one that all requests of a round share.
        """
        self.job = job
        self.prepared = prepared
        self.drafter = drafter
        self.policy = policy
        self.request = prepared.request
        self.request.seq, self.request.policy = seq, job.policy
        self.reading = True
        """Whether a part of its prompt is unread."""
        self.checkpoints: list[int] = []
        """Positions of its prompt, see `PrefixCache.positions`."""
        self.waits_since: float | None = None
        """Since when a picture of it waits until others are done; None where none does."""
        self.forgotten = False
        """Whether its sequence must be emptied when it ends."""
        self.defect: Exception | None = None
        """Why its events could not be handed over: it must end with that."""
        self._cached, self._saved_seconds = 0, 0.0
        self._began = self._decoding = time.perf_counter()
        self._speedup = SpeedupEstimate()
        self._speculation: Speculation | None = None
        """State of drafting after the last round; None before the first one."""
        self.reads_along = 0
        """Tokens at the end of the prompt that the first round reads too, until it has ended."""
        self._read_along = self._read_along_verify = 0.0
        """Seconds of that round and of its pass, which are the prompt's."""
        self._with_prompt = 0
        """Tokens that it emitted."""
        self.drafts_postponed = False
        """Whether rounds are plain until `resume_drafts`."""
        self.drafter_reads = False
        """Whether a drafter is to read the prompt before that."""

    @property
    def drafter_unread(self) -> int:
        """Tokens that the drafter has still to read before it can draft."""
        return self.drafter.unread(self.seq, self.tokens)

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self.job.interrupt.is_set()

    @property
    def tokens(self) -> list[int]:
        """Prompt and emitted tokens."""
        return self.request.tokens

    @property
    def finish(self) -> FinishReason | None:
        """Why it ended; None while it runs."""
        return self.request.finish

    @property
    def seq(self) -> int:
        """Its sequence of the KV cache."""
        return self.request.seq

    def start_restoring(self) -> None:
        """The prompt is looked for in the prefix cache."""
        self._began = time.perf_counter()

    def progress(self, done: int, *, encoding: bool = False) -> Reading:
        """The event that ``done`` tokens of the prompt are in the KV cache."""
        return Reading(done, self.request.prompt, self._cached, self._saved_seconds, encoding)

    def start_reading(self, cached: int, saved_seconds: float = 0.0) -> None:
        """Prefill begins; ``cached`` tokens of the prompt are in the KV cache already, which spared
        ``saved_seconds``.
        """
        self._cached, self._saved_seconds = cached, saved_seconds

    @property
    def typed(self) -> bool:
        """Whether its first characters are waited for while somebody types."""
        return self.prepared.infill is not None and self.request.limit > 0

    def start_decoding(self, *, reads_along: int = 0) -> None:
        """Prefill is over, but for so many tokens that the first round reads; so is a reply of no
        tokens.
        """
        self._decoding, self.reads_along = time.perf_counter(), reads_along
        if self.request.limit == 0:
            self.request.finish = "length"

    def reading_left(self) -> float | None:
        """Seconds left to read the prompt; None: as many as it takes."""
        infill = self.prepared.infill
        if infill is None or infill.prompt_seconds is None or self.request.limit == 0:
            return None
        return self._began + infill.prompt_seconds - time.perf_counter()

    def give_up(self) -> None:
        """End the reply before its first token."""
        self.request.finish = "length"

    def postpone_drafts(self, *, drafter_reads: bool) -> None:
        """The first token comes from a plain round; whether a drafter reads the prompt after it."""
        if not isinstance(self.policy, Plain):
            self.drafts_postponed, self.drafter_reads = True, drafter_reads
            self.request.policy = _READS_FIRST if drafter_reads else _TYPED

    def resume_drafts(self) -> None:
        """Draft for this reply from the next round on."""
        self.drafts_postponed, self.request.policy = False, self.job.policy

    def interrupt(self) -> None:
        """End the reply here; emitted tokens stay."""
        self.request.finish = "interrupt"

    def events(self, result: RoundResult, *, ended: float, alone: bool) -> list[ReplyEvent]:
        """The events of its last round, which ended at that time (`time.perf_counter`); ``alone``
        if it had no other request. The next round may have begun, and not emitted anything.
        """
        if self.reads_along:
            self.reads_along, self._decoding = 0, ended
            self._with_prompt = len(result.emitted)
            done = result.figures
            self._read_along, self._read_along_verify = done.seconds, done.verify_seconds
        elif alone:
            self._speedup.add(result.figures, self.policy.costs)
        tokens = [
            Token(item.token, item.text, item.origin, item.source, item.logprobs)
            for item in result.emitted
        ]
        planner = self.request.policy or self.policy
        self._speculation = planner.speculation_of(self.seq)
        return [*tokens, self._event(result, self._speculation, ended)]

    def _event(self, result: RoundResult, speculation: Speculation, ended: float) -> Round:
        return Round(
            **dataclasses.asdict(result.figures),
            context_used=len(self.tokens),
            speculation=speculation,
            speedup=self._speedup_at(ended),
        )

    def _speedup_at(self, now: float) -> Speedup | None:
        """The speed so far relative to plain decoding; time outside rounds counts for both."""
        tally, emitted = self.request.tally, len(self.request.emitted)
        beside = now - self._decoding - (tally.seconds - self._read_along)
        return self._speedup.speedup(beside / max(1, emitted))

    def _without_rounds(self) -> Speculation:
        """The state of a reply that ended before its first round."""
        plain = isinstance(self.policy, Plain)
        return self.policy.speculation_of(self.seq) if plain else _NO_ROUND

    def reply(self) -> Reply:
        """The whole reply."""
        now = time.perf_counter()
        self.prepared.ending.finish()  # an interrupted reply may still hold text back
        tally, emitted = self.request.tally, self.request.emitted
        predicted = self.request.drafting.prediction
        if predicted is not None:
            predicted.follow(self.tokens)
        read = self._decoding > self._began
        decode_seconds = now - self._decoding if read else 0.0
        return Reply(
            text=self.prepared.ending.stream.text,
            tokens=tuple(e.token for e in emitted),
            origins=tuple(e.origin for e in emitted),
            finish_reason=self.finish or "interrupt",
            stats=Stats(
                prompt_tokens=self.request.prompt,
                cached_tokens=self._cached,
                emitted=len(emitted),
                rounds=tally.rounds,
                drafted=tally.drafted,
                verified=tally.verified,
                accepted=tally.accepted,
                per_position=tally.per_position,
                by_drafter=dict(tally.by_drafter),
                prompt_seconds=(self._decoding if read else now) - self._began,
                decode_seconds=decode_seconds,
                draft_seconds=tally.draft_seconds,
                verify_seconds=tally.verify_seconds - self._read_along_verify,
                speculation=self._speculation or self._without_rounds(),
                speedup=self._speedup_at(now) if read else None,
                saved_seconds=self._saved_seconds,
                accepted_prediction_tokens=predicted.accepted if predicted is not None else 0,
                with_prompt=self._with_prompt,
                rejected_prediction_tokens=predicted.rejected if predicted is not None else 0,
            ),
            seed=self.request.noise.seed,
            stop_text=self.prepared.ending.stream.stop_text,
            valid=self._is_valid(),
        )

    def _is_valid(self) -> bool:
        """Whether the text is one that the grammar allows, also where a stop text or a limit of
        lines has cut it.
        """
        constraint, ending = self.request.processor.constraint, self.prepared.ending
        if constraint is None or not ending.stream.stopped:
            return constraint is None or constraint.complete
        whole, rest = ending.kept([e.token for e in self.request.emitted])
        return constraint.fits(self.tokens[: self.request.prompt + whole], rest)
