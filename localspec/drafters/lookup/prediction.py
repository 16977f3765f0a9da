"""Drafting from the text that a client expects as the reply ("predicted outputs")."""

from __future__ import annotations

import time
from collections.abc import Sequence

from localspec.core.drafter_registry import PREDICTION
from localspec.core.plan import Evidence
from localspec.core.values import Draft, no_draft
from localspec.drafters.base import Ask, Committed, Drafter
from localspec.drafters.lookup.common import LookupTexts, PendingGuesses, copied, legal_part


class PredictionDrafter(Drafter):
    """Drafts the part of the request's prediction that the reply has come to.

    A request without a prediction is not drafted for. Where a reply is in its prediction, and how
    sure that is, says `PredictedText`; how far is drafted, the pace.
    """

    name = PREDICTION

    def __init__(self) -> None:
        self._pending = PendingGuesses(self.name)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """The continuation of each request's prediction."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        k = min(ask.budget.nodes, ask.budget.depth)
        if k <= 0 or ask.prediction is None:
            return no_draft(self.name)
        start = time.perf_counter()
        ask.prediction.follow(ask.tokens)
        predicted = ask.prediction.next(k)
        tokens: list[int] = []
        confidences: list[float] = []
        for token in predicted:
            confidences.append(ask.prediction.confidence(len(tokens)))
            if not ask.pace.more(confidences):
                break
            tokens.append(token)
        tokens, confidences = legal_part(ask, tokens, confidences)
        if confidences:
            self._pending.note(ask, predicted[: len(confidences)], confidences)
        return copied(tokens, self.name, time.perf_counter() - start, len(confidences))

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Compare the last guesses with the emitted tokens."""
        return [found for item in news for found in self._pending.compared(item)]

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._pending.forget(seq)


def open_drafter(texts: LookupTexts) -> PredictionDrafter:
    """Open it; predictions come with requests."""
    del texts
    return PredictionDrafter()
