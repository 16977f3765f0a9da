"""A drafter that knows what plain decoding says, and errs where it is told to."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from localspec.core.values import Draft, Proposal, no_draft
from localspec.drafters.base import Ask, Drafter


class Oracle(Drafter):
    """Drafts that are right for long, or right in a side branch, or wrong from some place on:
    what a good draft model does, on targets whose text nothing here could foresee.
    """

    name = "oracle"

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.right: list[int] = []
        """The prompt and its plain reply."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft; there must be a single ask."""
        (ask,) = asks
        depth = min(ask.budget.depth, ask.budget.nodes)
        here = self.right[ask.position : ask.position + depth]
        if not here or self.right[: ask.position] != list(ask.tokens):
            return [no_draft(self.name)]
        rng = self._rng
        right = rng.randint(0, len(here))
        wrong = [rng.choice(self.right) for _ in here[right:]]
        tokens, parents = [*here[:right], *wrong], [*range(-1, len(here) - 1)]
        room = min(ask.budget.nodes - len(tokens), len(here))
        if room > 0 and ask.budget.leaves > 1:  # the right path is beside another one
            first = next(t for t in (*self.right, 5, 6) if t != here[0])
            beside = rng.randint(1, room)
            tokens = [first, *tokens[1:], *here[:beside]]
            parents = [*parents, -1, *range(len(here), len(here) + beside - 1)]
        ids = np.array(tokens, np.int32), np.array(parents, np.int32)
        return [Draft(*ids, Proposal.DETERMINISTIC, None, self.name)]
