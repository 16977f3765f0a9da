"""The target: the model whose output is promised, as the loop sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.core.values import Draft, Scores


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's share of a target pass."""

    seq: int
    pending: int
    """The token that is known and not yet in the KV cache."""
    draft: Draft
    """What may follow it; empty for plain decoding."""


class Target(Protocol):
    """The model whose output is promised, and the only owner of its KV cache."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        ...

    @property
    def leaves(self) -> int:
        """Leaves of a draft tree that it can score; 1 is chains only."""
        ...

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """One pass over every pending token and draft.

        The logits are views that the next pass overwrites.

        Raises:
            ContextFullError, Interrupted, DecodeError: nothing is kept of the pass.
        """
        ...

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Keep the pending token and the nodes of ``path`` of the last pass, forget the rest."""
        ...

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the KV cache, and kept ones that are still to be read anew."""
        ...

    def audit(self, seq: int) -> None:
        """Compare the KV cache with what it is believed to hold.

        Raises:
            AuditError: they differ.
        """
        ...


__all__ = ["Target", "Work"]
