"""Prompt lookup: propose what followed the same last tokens before, in the prompt or the reply."""

from __future__ import annotations

import time
from collections.abc import Sequence

from localspec.core.plan import Evidence
from localspec.core.values import Draft, no_draft
from localspec.drafters.base import Ask, Committed, Drafter
from localspec.drafters.lookup.common import LookupTexts, PendingGuesses, copied, legal_part

_AT_ONCE = 8192
"""Most tokens that are indexed at a time, while all replies wait."""
_LONGEST = 32
"""Matches are not measured beyond that."""


class _Index:
    """The last place of each n-gram of a growing token list. Constant work per token."""

    __slots__ = ("_ends", "_max", "_min", "indexed", "of")

    def __init__(self, of: Sequence[int], min_match: int, max_match: int) -> None:
        self.of = of
        self.indexed = 0
        """Tokens whose n-grams are indexed: all but the last, which is looked up."""
        self._min, self._max = min_match, max_match
        self._ends: dict[tuple[int, ...], int] = {}

    def update(self, upto: int, most: int) -> bool:
        """Take in n-grams that have a token after them, within the first ``upto`` tokens: those of
        ``most`` places at most; whether those were all.
        """
        last = min(upto - 1, self.indexed + most)
        for end in range(self.indexed + 1, last + 1):
            for n in range(self._min, min(self._max, end) + 1):
                self._ends[tuple(self.of[end - n : end])] = end
        self.indexed = max(self.indexed, last)
        return self.indexed >= upto - 1

    def match(self) -> tuple[int, int]:
        """(End of the last occurrence of the longest indexed suffix, full length of the match).

        (0, 0) where there is none.
        """
        of, n_tokens = self.of, len(self.of)
        for shortest in range(min(self._max, n_tokens), self._min - 1, -1):
            n, end = shortest, self._ends.get(tuple(of[n_tokens - shortest :]))
            if end is not None:
                length = n
                while (
                    length < min(end, _LONGEST)
                    and of[end - length - 1] == of[n_tokens - length - 1]
                ):
                    length += 1
                return end, length
        return 0, 0


def _confidence(length: int) -> float:
    """Uncalibrated confidence in the next token of a match of this length."""
    return length / (length + 1.5)


class NGram(Drafter):
    """n-gram drafts, longest match first (Saxena 2023, "Prompt lookup decoding")."""

    name = "ngram"

    def __init__(self, min_match: int = 2, max_match: int = 5) -> None:
        if not 1 <= min_match <= max_match:
            raise ValueError("n-gram lengths need 1 <= min_match <= max_match")
        self._min, self._max = min_match, max_match
        self._indexes: dict[int, _Index] = {}
        self._pending = PendingGuesses(self.name)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """The continuation of the last occurrence of the last tokens, if there is one."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        k = min(ask.budget.nodes, ask.budget.depth)
        if k <= 0:
            return no_draft(self.name)
        start = time.perf_counter()
        index = self._index(ask.seq, ask.tokens)
        if not index.update(len(ask.tokens), _AT_ONCE):
            return no_draft(self.name, time.perf_counter() - start)
        end, length = index.match()
        tokens: list[int] = []
        confidences: list[float] = []
        while length and len(tokens) < k:
            confidences.append(_confidence(length + len(tokens)))
            if not ask.pace.more(confidences):
                break
            at = end + len(tokens)
            # Where the match runs into the present, the text repeats itself.
            tokens.append(ask.tokens[at] if at < len(ask.tokens) else tokens[at - len(ask.tokens)])
        tokens, confidences = legal_part(ask, tokens, confidences)
        if length:
            expected = ask.tokens[end + len(tokens) :][:1] if len(confidences) > len(tokens) else ()
            self._pending.note(ask, [*tokens, *expected], confidences)
        return copied(tokens, self.name, time.perf_counter() - start, len(confidences))

    def _index(self, seq: int, tokens: Sequence[int]) -> _Index:
        index = self._indexes.get(seq)
        if index is None or index.of is not tokens:
            index = self._indexes[seq] = _Index(tokens, self._min, self._max)
        return index

    def follow(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Index the prompt while the target reads it, so that the first draft takes no longer than
        others.
        """
        self._index(seq, tokens).update(upto, _AT_ONCE)

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Forget another request's tokens; of this one the next draft reads what is new."""
        evidence: list[Evidence] = []
        for item in news:
            index = self._indexes.get(item.seq)
            if index is not None and index.of is not item.all_tokens:
                self.close(item.seq)
            evidence += self._pending.compared(item)
        return evidence

    def length(self, seq: int) -> int:
        """Tokens taken into the index."""
        index = self._indexes.get(seq)
        return index.indexed if index else 0

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._indexes.pop(seq, None)
        self._pending.forget(seq)


def open_drafter(texts: LookupTexts) -> NGram:
    """Open it; earlier texts are not searched."""
    return NGram(max(2, texts.min_match))
