"""Drafting from the text that a client expects as the reply ("predicted outputs")."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.drafter_registry import PREDICTION
from localspec.core.values import Draft, no_draft
from localspec.drafters.base import Ask
from localspec.drafters.lookup.common import LookupDrafter, LookupTexts


class PredictionDrafter(LookupDrafter):
    """Drafts the part of the request's prediction that the reply has come to.

    A request without a prediction is not drafted for. Where a reply is in its prediction, and how
    sure that is, says `PredictedText`; how far is drafted, the pace.
    """

    name = PREDICTION

    def _one(self, ask: Ask) -> Draft:
        return no_draft(self.name) if ask.prediction is None else super()._one(ask)

    def _guess(self, ask: Ask, k: int) -> tuple[list[int], list[float], Sequence[int]]:
        assert ask.prediction is not None
        ask.prediction.follow(ask.tokens)
        tokens: list[int] = []
        confidences: list[float] = []
        for token in ask.prediction.next(k):
            confidences.append(ask.prediction.confidence(len(tokens)))
            if not ask.pace.more(confidences):
                return tokens, confidences, [token]
            tokens.append(token)
        return tokens, confidences, ()


def open_drafter(texts: LookupTexts) -> PredictionDrafter:
    """Open it; predictions come with requests."""
    del texts
    return PredictionDrafter()
