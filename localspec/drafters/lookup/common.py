"""Shared parts of the drafters that copy from the text."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.plan import Evidence
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.drafters.base import Ask, Committed, Drafter, compare

AT_ONCE = 8192
"""Most tokens that are indexed at a time, while all replies wait: about 20 ms."""


@dataclass(frozen=True, slots=True)
class LookupTexts:
    """The texts and rules that a drafter which copies is opened with."""

    min_match: int = 1
    """Tokens that a match must have: more where another drafter can draft in its place."""
    earlier: tuple[tuple[int, ...], ...] = ()
    """Tokens of texts besides the running one, the oldest text first."""
    memory: int = 0
    """Most bytes for earlier requests to draft from."""


class LookupDrafter(Drafter):
    """Drafts chains that are fixed given the text, as far as the request's grammar allows, and
    shows how what it predicted compares with what was emitted.
    """

    def __init__(self) -> None:
        self._guesses: dict[int, tuple[Ask, Sequence[int], Sequence[float]]] = {}
        """What was predicted for the round, by sequence: the drafted tokens, then the refused one,
        and the confidence in each."""

    @abc.abstractmethod
    def _guess(self, ask: Ask, k: int) -> tuple[list[int], list[float], Sequence[int]]:
        """(At most ``k`` drafted tokens, the confidences of all that were considered, the one token
        that the pace refused).
        """

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """What follows in the text, as far as the pace allows."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        k = min(ask.budget.nodes, ask.budget.depth)
        if k <= 0:
            return no_draft(self.name)
        start = time.perf_counter()
        tokens, confidences, refused = self._guess(ask, k)
        rows = next((i for i, token in enumerate(tokens) if token < 0), len(tokens))
        legal = ask.legal(tokens[:rows])  # what is copied ends at a picture
        if legal < len(tokens):
            tokens, confidences = tokens[:legal], confidences[:legal]
        if confidences:
            self._guesses[ask.seq] = ask, [*tokens, *refused], confidences
        seconds = time.perf_counter() - start
        if not tokens:
            return no_draft(self.name, seconds, len(confidences))
        return Draft(
            tokens=np.array(tokens, np.int32),
            parents=chain_parents(len(tokens)),
            proposal=Proposal.DETERMINISTIC,
            probs=None,
            source=self.name,
            seconds=seconds,
            considered=len(confidences),
        )

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Compare the last guesses with the emitted tokens. Those of an earlier request, whose last
        round was interrupted, are dropped.
        """
        evidence: list[Evidence] = []
        for item in committed:
            ask, tokens, confidences = self._guesses.pop(item.seq, (None, (), ()))
            if ask is not None and ask.tokens is item.all_tokens:
                evidence += compare(item, self.name, tokens, confidences)
        return evidence

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._guesses.pop(seq, None)
