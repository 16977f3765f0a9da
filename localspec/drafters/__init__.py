"""Drafters: what proposes. Each sees committed tokens and a budget, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.noise import Noise
from localspec.sampling import Processor
from localspec.values import Budget, Draft, no_draft


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a draft."""

    seq: int
    tokens: Sequence[int]
    """Prompt and emitted tokens up to and including the pending one. The same object for the
    whole of a request; to be read, never changed."""
    budget: Budget
    noise: Noise
    processor: Processor
    """Logits processing of this request: q goes through what p goes through."""

    @property
    def position(self) -> int:
        """Of the first token to propose."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Committed:
    """The news of one round for one sequence; a prompt just read is a large one."""

    seq: int
    known: Sequence[int]
    """All tokens of the request, the object that the asks bring."""
    tokens: Sequence[int]
    """The last of them, those that are new."""
    hidden: dict[int, NDArray[np.float32]]
    """Layer -> features of the rows scored, for drafters that asked for them."""


class Drafter(Protocol):
    """Proposes, and learns what stood. Its cache is a prefix of the committed tokens; it catches
    up on the next ``propose``.
    """

    @property
    def name(self) -> str:
        """As on the command line and in the statistics."""
        ...

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft an ask, within its budget; may be empty."""
        ...

    def commit(self, news: Sequence[Committed]) -> None:
        """Told to every drafter after every round, also to those that did not draft."""
        ...

    def length(self, seq: int) -> int:
        """Tokens of the sequence in its cache."""
        ...

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        ...


class Off:
    """The drafter that never drafts."""

    name = "off"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Empty drafts."""
        return [no_draft(self.name) for _ in asks]

    def commit(self, news: Sequence[Committed]) -> None:
        """Nothing to learn."""

    def length(self, seq: int) -> int:
        """Always 0."""
        del seq
        return 0

    def close(self, seq: int) -> None:
        """Nothing to forget."""


__all__ = ["Ask", "Committed", "Drafter", "Off"]
