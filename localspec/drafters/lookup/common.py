"""Shared parts of the drafters that copy from the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.plan import Evidence
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.drafters.base import Ask, Committed, compare


@dataclass(frozen=True, slots=True)
class LookupTexts:
    """The texts and rules that a drafter which copies is opened with."""

    min_match: int = 1
    """Tokens that a match must have: more where another drafter can draft in its place."""
    earlier: tuple[tuple[int, ...], ...] = ()
    """Tokens of texts besides the running one, the oldest text first."""
    memory: int = 0
    """Most bytes for earlier requests to draft from."""


def copied(tokens: Sequence[int], source: str, seconds: float, considered: int) -> Draft:
    """A chain that is fixed given the text; empty without tokens."""
    if not tokens:
        return no_draft(source, seconds, considered)
    return Draft(
        tokens=np.array(tokens, np.int32),
        parents=chain_parents(len(tokens)),
        proposal=Proposal.DETERMINISTIC,
        probs=None,
        source=source,
        seconds=seconds,
        considered=considered,
    )


def legal_part(
    ask: Ask, tokens: list[int], confidences: list[float]
) -> tuple[list[int], list[float]]:
    """The part of a draft that the grammar of the request allows, with its confidences."""
    rows = next((i for i, token in enumerate(tokens) if token < 0), None)
    if rows is not None:  # what is copied ends at a picture
        tokens, confidences = tokens[:rows], confidences[:rows]
    legal = ask.legal(tokens)
    if legal == len(tokens):
        return tokens, confidences
    return tokens[:legal], confidences[:legal]


class PendingGuesses:
    """The tokens that a drafter predicted for a round: the drafted ones, then the refused one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._guesses: dict[int, tuple[Ask, Sequence[int], Sequence[float]]] = {}

    def note(self, ask: Ask, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        """Store them until the round is over."""
        self._guesses[ask.seq] = ask, tokens, confidences

    def compared(self, news: Committed) -> list[Evidence]:
        """Evidence on the stored tokens. None where there are none, or where they are of an earlier
        request, whose last round was interrupted.
        """
        if news.seq not in self._guesses:
            return []
        ask, tokens, confidences = self._guesses.pop(news.seq)
        if ask.tokens is not news.all_tokens:
            return []
        return compare(news, self._source, tokens, confidences)

    def forget(self, seq: int) -> None:
        """Drop them."""
        self._guesses.pop(seq, None)
