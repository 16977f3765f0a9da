"""One place of a reply, computed again on the models of a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import Examination
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.errors import ContextError, UsageError
from localspec.generation.inspect_token import examination
from localspec.generation.runnable import RunnablePair
from localspec.generation.scheduler import Scheduler


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
