"""Drafting with heads: with those that predict anywhere in a text, and those that do at its end."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.errors import NothingAllowedError, NotNumbersError
from localspec.core.plan import Evidence
from localspec.core.values import Proposal
from localspec.drafters.base import Ask, Committed
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.drafted_chain import Chain
from localspec.drafters.model.interface import CANNOT, DraftModel
from localspec.drafters.model.proposal import confidence


class HeadDrafter(ChainDrafter):
    """Chains from a head (Li et al. 2025, "EAGLE-3"; DeepSeek-AI 2024, section 2.2)."""

    reads_forced = False

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Read along while the states of the prompt are stored."""
        self._read_prompt(seq, tokens, upto)


class ForwardOnlyDrafter(HeadDrafter):
    """Chains from a head that predicts what follows the whole text, and nothing before."""

    def __init__(
        self, model: DraftModel, proposal: Proposal, name: str, deepest: int | None = None
    ) -> None:
        """See `ChainDrafter`."""
        super().__init__(model, proposal, name, deepest)
        self._predicted: dict[int, Chain] = {}
        """Probes to be compared with the next emitted token."""

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """See `Drafter.commit`; evidence of the last probe is included."""
        evidence = super().commit(committed)
        for item in committed:
            probe = self._predicted.pop(item.seq, None)
            if probe is not None and probe.ask.tokens is item.all_tokens:
                evidence += self._compared(probe, item)
        return evidence

    def _probe(self, ask: Ask) -> None:
        """Predict the next token now, score it on `commit`; these heads cannot score past
        positions.
        """
        missing = self._cache.missing(ask.seq, ask.tokens)
        if self.problem is not None or not self._cache.readable(missing):
            return
        try:
            ((row,),) = self._cache.extend([(ask.seq, missing, 1)])
        except CANNOT:
            return
        try:
            q = ask.processor(row, ask.before())
        except NotNumbersError:
            self.give_up()
            return
        except NothingAllowedError:
            return
        proposal = self.chooser.proposal(ask)
        sure = confidence(q, row, ask.processor.allowed(ask.tokens))
        probe = Chain(ask, 0, proposal, ask.position, confidences=[sure], places=[0], refused=q)
        self._predicted[ask.seq] = probe
