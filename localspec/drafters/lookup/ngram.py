"""Prompt lookup: propose what followed the same last tokens before, in the prompt or the reply."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import Evidence
from localspec.drafters.base import Ask, Committed
from localspec.drafters.lookup.common import AT_ONCE, LookupDrafter, LookupTexts

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


class NGram(LookupDrafter):
    """n-gram drafts, longest match first (Saxena 2023, "Prompt lookup decoding")."""

    name = "ngram"

    def __init__(self, min_match: int = 2, max_match: int = 5) -> None:
        if not 1 <= min_match <= max_match:
            raise ValueError("n-gram lengths need 1 <= min_match <= max_match")
        super().__init__()
        self._min, self._max = min_match, max_match
        self._indexes: dict[int, _Index] = {}

    def _guess(self, ask: Ask, k: int) -> tuple[list[int], list[float], Sequence[int]]:
        """The continuation of the last occurrence of the last tokens, if there is one."""
        index = self._index(ask.seq, ask.tokens)
        if not index.update(len(ask.tokens), AT_ONCE):
            return [], [], ()
        end, length = index.match()
        tokens: list[int] = []
        confidences: list[float] = []
        while length and len(tokens) < k:
            confidences.append(_confidence(length + len(tokens)))
            at = end + len(tokens)
            if not ask.pace.more(confidences):
                return tokens, confidences, ask.tokens[at : at + 1]
            # Where the match runs into the present, the text repeats itself.
            tokens.append(ask.tokens[at] if at < len(ask.tokens) else tokens[at - len(ask.tokens)])
        return tokens, confidences, ()

    def _index(self, seq: int, tokens: Sequence[int]) -> _Index:
        index = self._indexes.get(seq)
        if index is None or index.of is not tokens:
            index = self._indexes[seq] = _Index(tokens, self._min, self._max)
        return index

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Index the prompt while the target reads it, so that the first draft takes no longer than
        others.
        """
        self._index(seq, tokens).update(upto, AT_ONCE)

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Forget another request's tokens; of this one the next draft reads what is new."""
        for item in committed:
            index = self._indexes.get(item.seq)
            if index is not None and index.of is not item.all_tokens:
                self.close(item.seq)
        return super().commit(committed)

    def length(self, seq: int) -> int:
        """Tokens taken into the index."""
        index = self._indexes.get(seq)
        return index.indexed if index else 0

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._indexes.pop(seq, None)
        super().close(seq)


def open_drafter(texts: LookupTexts) -> NGram:
    """Open it; earlier texts are not searched."""
    return NGram(max(2, texts.min_match))
