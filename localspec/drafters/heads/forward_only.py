"""Drafting with heads that know nothing of places that the target has passed."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import Evidence
from localspec.core.values import Proposal
from localspec.drafters.base import Ask, Committed
from localspec.drafters.heads.eagle import HeadDrafter
from localspec.drafters.model.chain import Chain
from localspec.drafters.model.interface import CANNOT, DraftModel
from localspec.drafters.model.proposal import confidence
from localspec.errors import NothingAllowedError, NotNumbersError


class ForwardOnlyDrafter(HeadDrafter):
    """Chains from a head that can say what follows the whole text, and nothing of places in it."""

    def __init__(
        self, model: DraftModel, proposal: Proposal, name: str, deepest: int | None = None
    ) -> None:
        """See `HeadDrafter`."""
        super().__init__(model, proposal, name, deepest)
        self._foreseen: dict[int, Chain] = {}
        """Looks that wait for what is said."""

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """See `Drafter`; what was foreseen in a look is judged too."""
        evidence = super().commit(news)
        for item in news:
            look = self._foreseen.pop(item.seq, None)
            if look is not None and look.ask.tokens is item.known:
                evidence += self._judged(look, item)
        return evidence

    def _look(self, ask: Ask) -> None:
        """Guess what comes next, to be compared when it is known: of what was said it is too late
        to ask.
        """
        missing = self._books.missing(ask.seq, ask.tokens)
        if self.trouble is not None or not self._books.readable(missing):
            return
        try:
            ((row,),) = self._books.extend([(ask.seq, missing, 1)])
        except CANNOT:
            return
        lookback = ask.processor.lookback
        try:
            q = ask.processor(row, ask.tokens[-lookback:] if lookback else [])
        except NotNumbersError:
            self.give_up()
            return
        except NothingAllowedError:
            return
        proposal = self.chooser.proposal(ask.processor.sampling)
        look = Chain(ask, 0, proposal, ask.position, confidences=[confidence(q, row)], refused=q)
        self._foreseen[ask.seq] = look


__all__ = ["ForwardOnlyDrafter"]
