"""A chain while a model drafts it, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from localspec.core.values import (
    Distribution,
    Draft,
    Proposal,
    chain_parents,
    no_draft,
    one_hot,
)
from localspec.drafters.base import Ask


@dataclass(slots=True)
class Chain:
    """A chain being drafted."""

    ask: Ask
    depth: int
    proposal: Proposal
    start: int
    """Position of its first token; the request's list has grown when the chain is verified."""
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    """The draft model's own distribution for each token."""
    drawn_from: list[Distribution] = field(default_factory=list)
    """The distribution each token was drawn from."""
    confidences: list[float] = field(default_factory=list)
    """One for each token that the model chose, and one more where the pace refused the next one."""
    places: list[int] = field(default_factory=list)
    """Place in the chain of the token that each confidence is of; the others were forced."""
    reads_forced: bool = True
    """See `localspec.drafters.model.chain.ChainDrafter.reads_forced`."""
    refused: Distribution | None = None
    """q of the refused token."""
    passes: int = 0

    @property
    def open(self) -> bool:
        """Whether the model may draft another token of it."""
        return self.refused is None and len(self.confidences) < self.depth

    def take_forced(self) -> list[int]:
        """Append the tokens that the grammar forces here, without a pass of the model."""
        if not self.reads_forced:
            return []
        forced = self.ask.forced(self.tokens)
        self.tokens += forced
        self.q += map(one_hot, forced)
        self.drawn_from += map(one_hot, forced)
        return forced

    def draft(self, source: str, seconds: float) -> Draft:
        """The tokens so far as the draft of the drafter ``source``, which took ``seconds``."""
        if not self.tokens:
            return no_draft(source, seconds, len(self.confidences))
        return Draft(
            tokens=np.array(self.tokens, np.int32),
            parents=chain_parents(len(self.tokens)),
            proposal=self.proposal,
            probs=tuple(self.drawn_from) if self.proposal is Proposal.SAMPLED else None,
            source=source,
            seconds=seconds,
            considered=len(self.confidences),
        )
