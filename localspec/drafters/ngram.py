"""Prompt lookup: propose what followed the same last tokens before, in the prompt or the reply."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from localspec.drafters import Ask, Committed
from localspec.values import Draft, Proposal, chain_parents, no_draft


class _Index:
    """Where each n-gram of a growing token list was last seen. Constant work a token."""

    __slots__ = ("_ends", "_max", "_min", "indexed", "of")

    def __init__(self, of: Sequence[int], min_match: int, max_match: int) -> None:
        self.of = of
        self.indexed = 0
        """Tokens whose n-grams are in: all but the last, which is what we look up."""
        self._min, self._max = min_match, max_match
        self._ends: dict[tuple[int, ...], int] = {}

    def update(self) -> None:
        """Take in every n-gram that has a token after it."""
        for end in range(self.indexed + 1, len(self.of)):
            for n in range(self._min, min(self._max, end) + 1):
                self._ends[tuple(self.of[end - n : end])] = end
        self.indexed = max(self.indexed, len(self.of) - 1)

    def continuation(self, k: int) -> list[int]:
        """Up to k tokens that followed the longest known suffix when it was last seen."""
        known = len(self.of)
        for n in range(min(self._max, known), self._min - 1, -1):
            end = self._ends.get(tuple(self.of[known - n :]))
            if end is not None:
                found = list(self.of[end : end + k])
                while len(found) < k:  # the match runs into the present: the text repeats itself
                    found.append(found[len(found) - (known - end)])
                return found
        return []


class NGram:
    """n-gram drafts, longest match first (Saxena 2023, "Prompt lookup decoding")."""

    name = "ngram"

    def __init__(self, min_match: int = 2, max_match: int = 5) -> None:
        if not 1 <= min_match <= max_match:
            raise ValueError("n-gram lengths need 1 <= min_match <= max_match")
        self._min, self._max = min_match, max_match
        self._indexes: dict[int, _Index] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """The continuation of the last occurrence of the last tokens, if there is one."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        k = min(ask.budget.nodes, ask.budget.depth)
        if k <= 0:
            return no_draft(self.name)
        start = time.perf_counter()
        index = self._indexes.get(ask.seq)
        if index is None or index.of is not ask.tokens:
            index = self._indexes[ask.seq] = _Index(ask.tokens, self._min, self._max)
        index.update()
        tokens = index.continuation(k)
        return Draft(
            tokens=np.array(tokens, np.int32),
            parents=chain_parents(len(tokens)),
            proposal=Proposal.DETERMINISTIC,
            probs=None,
            source=self.name,
            seconds=time.perf_counter() - start,
        )

    def commit(self, news: Sequence[Committed]) -> None:
        """Forget another request's tokens; of this one the next draft reads what is new."""
        for item in news:
            index = self._indexes.get(item.seq)
            if index is not None and index.of is not item.known:
                self.close(item.seq)

    def length(self, seq: int) -> int:
        """Tokens taken into the index."""
        index = self._indexes.get(seq)
        return index.indexed if index else 0

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._indexes.pop(seq, None)
