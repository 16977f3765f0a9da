"""One place of a reply, computed again on the models of a scheduler: what target and draft model
expected there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from localspec.core.errors import (
    ContextError,
    Interrupted,
    NothingAllowedError,
    NotNumbersError,
    QueueFullError,
    UsageError,
)
from localspec.core.events import Candidate, Examination, Token
from localspec.core.interrupt import Interrupt
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.selection import require_finite
from localspec.core.values import Distribution, Logits
from localspec.decode.verifiers import Choice
from localspec.drafters.base import Drafter
from localspec.generation.part_sizes import LEAST_PART
from localspec.generation.runnable import RunnablePair
from localspec.generation.scheduler import Scheduler

_CANDIDATES = 8
_TRIES = 4
"""Parts that may be read for each that is needed, before others are said to be in the way."""


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
    if request.seed is None:
        raise UsageError("a place is examined with the seed of its reply")
    noise = Noise(request.seed)
    if request.sampling.mirostat:
        raise UsageError(
            "a place of a reply under Mirostat cannot be examined: what is left there depends on "
            "the probabilities of every token before"
        )
    if not tokens or not all(0 <= t < model.n_vocab for t in (*tokens, rival or 0)):
        raise UsageError("these are not tokens of this model")
    prompt, processor = scheduler.prepare(request, partial(_prepared, scheduler, request, noise))
    known = [*prompt, *tokens[:-1]]
    if len(known) > pair.target.capacity:
        raise ContextError("the context has no room for that place any more")

    def display(token: int) -> str:
        """A token as text; control tokens by their name."""
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def compute(free: Sequence[int]) -> Examination | None:
        if interrupt.is_set():
            raise Interrupted("nobody waits for this place any more")
        blend = pair.target.blend(request.adapters)
        found = scheduler.prefill.row_after(known, free, request.owner, blend)
        if found is None:
            return None
        seq, row = found
        return examination(
            row,
            known,
            tokens[-1],
            rival,
            drafter=pair.drafter,
            seq=seq,
            processor=processor,
            noise=noise,
            text=display,
        )

    if request.sees:
        _read_prompt(scheduler, request, interrupt)
    tries = _TRIES + _TRIES * len(known) // LEAST_PART  # other replies may displace parts
    calls = (scheduler.call(compute, needs_sequence=True) for _ in range(tries))
    return _first(calls)


def _prepared(
    scheduler: Scheduler, request: ReplyRequest, noise: Noise
) -> tuple[list[int], LogitsProcessor]:
    known = scheduler.preparation
    prompt, conversation, _ = known.prompt(request)
    constraint = known.constraint(request, prompt, conversation)
    return prompt, known.processing.processor(request.sampling, noise, constraint)


def _first(calls: Iterator[Examination | None]) -> Examination:
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
    before: list[int],
    token: int,
    rival: int | None,
    *,
    drafter: Drafter,
    seq: int,
    processor: LogitsProcessor,
    noise: Noise,
    text: Callable[[int], str],
) -> Examination:
    """The candidates for the place of ``token`` after the tokens ``before``.

    ``row`` (V,) are the target's logits there; ``text`` returns the text of a token.
    """
    p = processor(row, before)
    draft_row = drafter.logits(seq, before)
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

    best = np.argsort(-model, kind="stable")[:_CANDIDATES]
    return Examination(
        candidate(token),
        tuple(candidate(int(i)) for i in best),
        None if rival is None else _gap(row, before, (token, rival), processor, noise),
    )


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
    tokens: Sequence[int],
    processor: LogitsProcessor,
    noise: Noise,
) -> float:
    """The gap as `localspec.bench.exactness` defines it: twice the distance by which every logit
    must be able to move.
    """
    choice = Choice(before, processor, noise)
    return 2 * max(choice.distance(row, token) for token in tokens)
