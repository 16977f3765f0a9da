"""Drafting what the request's grammar forces, and nothing else."""

from __future__ import annotations

from localspec.core.values import GRAMMAR
from localspec.drafters.base import Off
from localspec.drafters.lookup.common import LookupTexts


class GrammarDrafter(Off):
    """Proposes nothing of its own.

    What a grammar forces continues every draft, also the empty one of this drafter
    (`localspec.decode.routing`). Alone, it shows what the grammar is worth without any other.
    """

    name = GRAMMAR


def open_drafter(texts: LookupTexts) -> GrammarDrafter:
    """Open it; no text is searched."""
    del texts
    return GrammarDrafter()
