"""One position of a reply, computed again: the probabilities of target and draft model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.events import Candidate, Examination
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.values import Distribution, Logits
from localspec.drafters.base import Drafter
from localspec.errors import NothingAllowedError, NotNumbersError
from localspec.verifiers.near_tie import Choice

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
