"""Drafting what the request's grammar forces, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.values import GRAMMAR, Draft, no_draft
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.lookup.common import LookupTexts


class GrammarDrafter(Drafter):
    """Proposes nothing of its own.

    What a grammar forces continues every draft, also the empty one of this drafter
    (`localspec.decode.routing`). Alone, it shows what the grammar is worth without any other.
    """

    name = GRAMMAR

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Empty drafts."""
        return [no_draft(self.name) for _ in asks]


def open_drafter(texts: LookupTexts) -> GrammarDrafter:
    """Open it; no text is searched."""
    del texts
    return GrammarDrafter()
