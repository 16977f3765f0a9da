"""What drafters that copy from the text have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.plan import Evidence
from localspec.core.values import Draft, Proposal, chain_parents
from localspec.drafters.base import Committed, judge


@dataclass(frozen=True, slots=True)
class LookupTexts:
    """What a drafter that copies is opened with."""

    min_match: int = 1
    """Tokens that a match must have: more where another drafter can draft in its place."""
    earlier: tuple[tuple[int, ...], ...] = ()
    """Tokens of texts besides the running one, the oldest text first."""


def copied(tokens: Sequence[int], source: str, seconds: float, considered: int) -> Draft:
    """A chain that is fixed given the text; empty without tokens."""
    return Draft(
        tokens=np.array(tokens, np.int32),
        parents=chain_parents(len(tokens)),
        proposal=Proposal.DETERMINISTIC,
        probs=None,
        source=source,
        seconds=seconds,
        considered=considered,
    )


class InMind:
    """What a drafter had in mind for a round: what it drafted and, last, what it did not."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._guesses: dict[int, tuple[Sequence[int], Sequence[float]]] = {}

    def note(self, seq: int, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        """To be judged when the round is over."""
        self._guesses[seq] = tokens, confidences

    def judged(self, news: Committed) -> list[Evidence]:
        """How it did, where there was anything."""
        return judge(news, self._source, *self._guesses.pop(news.seq, ((), ())))

    def forget(self, seq: int) -> None:
        """It is not to be judged."""
        self._guesses.pop(seq, None)


__all__ = ["InMind", "LookupTexts", "copied"]
