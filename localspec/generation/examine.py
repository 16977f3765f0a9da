"""One place of a reply, computed again on the models of a scheduler: what target and draft model
expected there.

The scheduler's thread computes the logits alone, since everybody waits for it. What is made of
them, and following a grammar to that place, is computed by the thread that asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from localspec.core.constraint import Constraint
from localspec.core.errors import (
    ContextError,
    GrammarError,
    Interrupted,
    NothingAllowedError,
    NotNumbersError,
    QueueFullError,
    UsageError,
)
from localspec.core.events import Candidate, Examination, Token
from localspec.core.interrupt import Cancelled, Interrupt
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.selection import require_finite
from localspec.core.values import Distribution, Logits, TokenView
from localspec.decode.target_choice import TargetChoice
from localspec.generation.part_sizes import LEAST_PART
from localspec.generation.reply_job import naming_adapters
from localspec.generation.runnable import RunnablePair
from localspec.generation.scheduler import Scheduler

_CANDIDATES = 8
_TRIES = 4
"""Parts that may be read for each that is needed, before others are said to be in the way."""
_FOLLOW_S = 10.0
"""Seconds that following a grammar to a place may take."""
_GAP_S = 10.0
"""Seconds of computing that the gap to a rival may take."""
_NOBODY_WAITS = "nobody waits for this place any more"
_T = TypeVar("_T")


def examine(
    scheduler: Scheduler,
    pair: RunnablePair,
    request: ReplyRequest,
    tokens: Sequence[int],
    rival: int | None,
    interrupt: Interrupt,
) -> Examination:
    """See `localspec.runtime.Runtime.examine`. What is not cached is read between rounds."""
    model = pair.target_model
    noise = _noise_of(request)
    if not tokens or not all(0 <= t < model.n_vocab for t in (*tokens, rival or 0)):
        raise UsageError("these are not tokens of this model")

    def cancelled() -> bool:
        return interrupt.is_set() or scheduler.closed

    blend = pair.target.blend(request.adapters)
    prompt, processor = scheduler.prepare(
        request, partial(_prepared, scheduler, request, noise, cancelled)
    )
    known = [*prompt, *tokens[:-1]]
    if len(known) > pair.target.capacity:
        raise ContextError("the context has no room for that place any more")
    if processor.constraint is not None:
        _follow(processor.constraint, known, len(prompt), cancelled)

    def display(token: int) -> str:
        """A token as text; control tokens by their name."""
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def compute(free: Sequence[int]) -> tuple[Logits, Logits | None, dict[int, str]] | None:
        if interrupt.is_set():
            raise Interrupted(_NOBODY_WAITS)
        found = scheduler.prefill.row_after(known, free, request.owner, blend)
        if found is None:
            return None
        seq, row = found
        texts = {token: display(token) for token in (tokens[-1], *_likeliest(row))}
        return row, pair.drafter.logits(seq, known), texts

    if request.sees:
        _read_prompt(scheduler, request, interrupt)
    tries = _TRIES + _TRIES * len(known) // LEAST_PART  # other replies may displace parts
    calls = (scheduler.call(compute, needs_sequence=True) for _ in range(tries))
    row, draft_row, texts = _first(calls)
    with naming_adapters(request, blend):
        return examination(
            row,
            draft_row,
            known,
            tokens[-1],
            rival,
            processor=processor,
            noise=noise,
            text=texts.__getitem__,
            cancelled=cancelled,
        )


def _noise_of(request: ReplyRequest) -> Noise:
    """The noise of the reply to a request.

    Raises:
        UsageError: what was chosen in it cannot be computed again.
    """
    if request.seed is None:
        raise UsageError("a place is examined with the seed of its reply")
    if request.sampling.mirostat:
        raise UsageError(
            "a place of a reply under Mirostat cannot be examined: what is left there depends on "
            "the probabilities of every token before"
        )
    return Noise(request.seed)


def _prepared(
    scheduler: Scheduler, request: ReplyRequest, noise: Noise, cancelled: Cancelled
) -> tuple[list[int], LogitsProcessor]:
    known = scheduler.preparation
    prompt, conversation, _ = known.prompt(request, cancelled)
    constraint = known.constraint(request, prompt, conversation, cancelled)
    return prompt, known.processing.processor(request.sampling, noise, constraint)


def _follow(
    constraint: Constraint, tokens: Sequence[int], start: int, cancelled: Cancelled
) -> None:
    """Have a grammar follow a reply that begins at ``start``, as it did when that was made: token
    by token, each after the mask of its place.

    Raises:
        UsageError: the grammar forbids one of the tokens.
        GrammarError: that takes too long.
        Interrupted: ``cancelled`` returned true.
    """
    until = time.monotonic() + _FOLLOW_S
    for at in range(start, len(tokens)):
        if cancelled():
            raise Interrupted(_NOBODY_WAITS)
        if time.monotonic() > until:
            raise GrammarError(
                f"following the grammar to this place takes more than {_FOLLOW_S:g} seconds"
            )
        mask = constraint.mask(TokenView(tokens, length=at))
        if mask is not None and not mask.allows_token(tokens[at]):
            raise UsageError(
                f"token {1 + at - start} is none that the grammar of this request allows there"
            )
        constraint.take(TokenView(tokens, length=at + 1))


def _first(calls: Iterator[_T | None]) -> _T:
    """What the first call returns that does not return None.

    Raises:
        QueueFullError: none does.
    """
    for found in calls:
        if found is not None:
            return found
    raise QueueFullError("other replies need the place of this text; try again later")


def _read_prompt(scheduler: Scheduler, request: ReplyRequest, interrupt: Interrupt) -> None:
    """Read a prompt with pictures as every request does: encoded beside the others' passes, and in
    parts between their rounds.

    Raises:
        LocalspecError: as for a reply.
    """
    # With its own limit of tokens: what is left out of a conversation depends on that.
    reading = replace(request, grammar=None, logprobs=None, prompt_logprobs=None)
    read = Interrupt()
    interrupt.watch(read)
    for event in scheduler.submit(reading, read):
        if isinstance(event, Token):
            read.set()


def examination(
    row: Logits,
    draft_row: Logits | None,
    before: list[int],
    token: int,
    rival: int | None,
    *,
    processor: LogitsProcessor,
    noise: Noise,
    text: Callable[[int], str],
    cancelled: Cancelled,
) -> Examination:
    """The candidates for the place of ``token`` after the tokens ``before``.

    ``row`` (V,) are the target's logits there, ``draft_row`` (V,) the draft's, None where it has
    none; ``text`` returns the text of a token.

    Raises:
        UsageError: the gap takes too long.
        Interrupted: ``cancelled`` returned true.
    """
    p = processor(row, before)
    q = None if draft_row is None else _drafted(processor, draft_row, before)
    model = _softmax(row)

    def candidate(token: int) -> Candidate:
        return Candidate(
            token,
            text(token),
            p.probability(token),
            None if q is None else q.probability(token),
            float(model[token]),
        )

    return Examination(
        candidate(token),
        tuple(candidate(i) for i in _likeliest(row)),
        None if rival is None else _gap(row, before, {token, rival}, processor, noise, cancelled),
    )


def _likeliest(row: Logits) -> list[int]:
    """The tokens of the largest logits, the likeliest first."""
    found: list[int] = np.argsort(-row, kind="stable")[:_CANDIDATES].tolist()
    return found


def _drafted(processor: LogitsProcessor, row: Logits, past: Sequence[int]) -> Distribution | None:
    """The draft's q; None where it has no token to propose."""
    try:
        return processor(row, past)
    except (NotNumbersError, NothingAllowedError):
        return None


def _softmax(row: Logits) -> Logits:
    best = float(row.max())
    require_finite(best)
    weights = np.exp(row - best)
    return np.asarray(weights / weights.sum(), np.float32)


def _gap(
    row: Logits,
    before: list[int],
    tokens: Collection[int],
    processor: LogitsProcessor,
    noise: Noise,
    cancelled: Cancelled,
) -> float:
    """See `TargetChoice.gap`.

    Raises:
        UsageError: that takes too long: samplers that sort all tokens, or a slow grammar.
        Interrupted: ``cancelled`` returned true.
    """
    until = time.thread_time() + _GAP_S

    def go_on() -> None:
        if cancelled():
            raise Interrupted(_NOBODY_WAITS)
        if time.thread_time() > until:
            raise UsageError(
                f"how far these two tokens are apart takes more than {_GAP_S:g} seconds to compute "
                "with these samplers"
            )

    return TargetChoice(before, processor, noise).gap(row, tokens, go_on)
