"""The text that a client expects as the reply, and where the reply is in it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

_START = 4.0
"""Tokens that the beginning of the reply counts for as a match with the beginning of the text."""
_SURE = 3
"""Tokens in a row that must agree before the search for places continues from there."""
_LONGEST = 16
"""Longest match in tokens; longer ones count as this long."""
_GRAM = 4
"""Tokens of the grams that are searched for in the whole text."""
_NEAR = 24
"""Nearest places of a single token that are examined."""
_FAR = 8
"""Places of a gram that are examined."""
_WORTH = 2.0
"""Doublings of distance that one more agreeing token outweighs."""
_CLOSE = 16
"""Tokens from the place of a divergence within which a match counts for one more."""
_DOUBT = 1.5
"""Strength of a match with confidence 1/2."""
_GUESSES = 2
"""Tokens after a divergence for which one token is taken to replace another."""


class PredictedText:
    """A prediction, followed along a reply that may leave it and come back.

    While the emitted tokens are those of the text, the next ones are predicted from there. Where
    they differ, the tokens before may have been replaced, left out, inserted or moved: the place is
    taken where the most of the last tokens agree, the nearest of several. Without one, a token is
    taken to stand for another.
    """

    def __init__(self, tokens: Sequence[int], start: int, most: int | None = None) -> None:
        """``start`` is the length of the prompt: the reply begins there. Tokens beyond ``most`` are
        counted, and never predicted.
        """
        self.tokens = list(tokens[:most])
        self._beyond = len(tokens) - len(self.tokens)
        self._seen = self._start = start
        self._at = 0
        self._strength = _START
        self._sure = 0
        """Place behind the last tokens that surely agreed."""
        self._misses = 0
        self._places: dict[int, list[int]] = {}
        """Places behind a token, by token, in ascending order."""
        self._grams: dict[tuple[int, ...], list[int]] = {}
        for end, token in enumerate(self.tokens, 1):
            self._places.setdefault(token, []).append(end)
            if end >= _GRAM:
                self._grams.setdefault(tuple(self.tokens[end - _GRAM : end]), []).append(end)
        self._bits: dict[int, int] = {}
        """Places of a token as bits, by token; of those that the reply had."""
        self._unmatched = (1 << len(self.tokens)) - 1

    @property
    def accepted(self) -> int:
        """Tokens of the text that the reply has in the same order, as far as it was followed: the
        length of their longest common subsequence.
        """
        return len(self.tokens) - self._unmatched.bit_count()

    @property
    def rejected(self) -> int:
        """Tokens of the text that it does not have."""
        return self._unmatched.bit_count() + self._beyond

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in the tokens emitted since the last call; ``tokens`` begins with the prompt."""
        while self._seen < len(tokens):
            token = tokens[self._seen]
            self._seen += 1
            self._count(token)
            if self._at < len(self.tokens) and self.tokens[self._at] == token:
                self._at += 1
                self._strength += 1
                if self._misses == 0 or self._strength >= _SURE:
                    self._sure, self._misses = self._at, 0
            else:
                self._misses += 1
                self._find(tokens[max(self._start, self._seen - _LONGEST) : self._seen])

    def next(self, most: int) -> Sequence[int]:
        """At most ``most`` tokens that are predicted now; empty where none are."""
        if self._strength == 0 and self._misses > _GUESSES:
            return ()
        return self.tokens[self._at : self._at + most]

    def confidence(self, index: int) -> float:
        """Uncalibrated confidence in a predicted token, given that those before it were right."""
        strength = self._strength + index
        return strength / (strength + _DOUBT) if strength else 0.05

    def _find(self, last: Sequence[int]) -> None:
        """The place that follows the last tokens best; the reply has just left another."""
        best, found, longest = -math.inf, self._sure + self._misses, 0
        for end in self._candidates(last):
            length = 1
            while (
                length < min(len(last), end) and self.tokens[end - length - 1] == last[-length - 1]
            ):
                length += 1
            away = abs(end - self._sure - 1)
            worth = _WORTH * length - math.log2(1 + away) - (end <= self._sure)
            if worth > best:
                best, found, longest = worth, end, length
        close = abs(found - self._sure) <= _CLOSE
        self._at = found
        self._strength = float(longest + (longest > 0 and close))

    def _candidates(self, last: Sequence[int]) -> set[int]:
        places = self._places.get(last[-1], [])
        middle = bisect.bisect_left(places, self._sure)
        near = places[max(0, middle - _NEAR // 4) : middle + _NEAR]
        return {*near, *self._grams.get(tuple(last[-_GRAM:]), ())[:_FAR]}

    def _count(self, token: int) -> None:
        """One step of the longest common subsequence in bits (Hyyrö 2004, "Bit-parallel LCS-length
        computation revisited"): a bit that is clear is a token that was matched.
        """
        if token not in self._bits:
            self._bits[token] = self._bits_of(token)
        unmatched = self._unmatched
        here = unmatched & self._bits[token]
        whole = (1 << len(self.tokens)) - 1
        self._unmatched = ((unmatched + here) | (unmatched - here)) & whole

    def _bits_of(self, token: int) -> int:
        places = self._places.get(token, ())
        marks = bytearray(len(self.tokens) // 8 + 1 if places else 0)
        for end in places:
            at, bit = divmod(end - 1, 8)
            marks[at] |= 1 << bit
        return int.from_bytes(marks, "little")
