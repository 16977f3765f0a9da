"""One place of a reply, computed again on the models of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.events import Candidate, Examination
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.values import Distribution, Logits
from localspec.drafters.base import Drafter
from localspec.errors import ContextError, NothingAllowedError, NotNumbersError, UsageError
from localspec.generation.runnable import RunnablePair
from localspec.generation.scheduler import Scheduler
from localspec.verifiers.near_tie import Choice


def examine(
    scheduler: Scheduler,
    pair: RunnablePair,
    request: ReplyRequest,
    tokens: Sequence[int],
    rival: int | None,
) -> Examination:
    """See `localspec.runtime.Runtime.examine`."""
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
    prompt, conversation = scheduler.preparation.prompt(request)
    constraint = scheduler.preparation.constraint(request, prompt, conversation)
    processor = scheduler.preparation.processing.processor(request.sampling, noise, constraint)
    known = [*prompt, *tokens[:-1]]
    if len(known) > pair.target.capacity:
        raise ContextError("the context has no room for that place any more")

    def display(token: int) -> str:
        """A token as text; control tokens by their name."""
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def compute(free: Sequence[int]) -> Examination:
        blend = pair.target.blend(request.adapters)
        seq, row = scheduler.prefill.row_after(known, free, request.owner, blend)
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

    return scheduler.call(compute, needs_sequence=True)


_CANDIDATES = 8


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
    weights = np.exp(row - row.max())
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
