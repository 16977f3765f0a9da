"""An index of the suffixes of a growing text: finds earlier occurrences of its end.

A chain of positions for each gram of a few sizes: `last` is the latest place of a gram, `before`
the place before each place. A token is taken in at constant cost, and taken back at the same cost,
so a text that shares most of its beginning with the one before is not indexed again. Real match
lengths are measured on the text itself, so an accident of hashing costs a comparison and nothing
else.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.drafters.model.interface import common_prefix

SIZES = (12, 5, 2, 1)
"""Gram sizes, longest first: a match of any length is found by the longest that fits into it."""
LONGEST = 48
"""Matches are not measured beyond that."""
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where the last tokens of the text were before."""

    end: int
    """End of the occurrence: its continuation starts here."""
    length: int
    """Tokens that agree, up to `LONGEST`."""


class SuffixIndex:
    """The suffixes of one text; about 300 bytes of memory per token."""

    __slots__ = ("_before", "_earlier", "_last", "_of", "_others", "text")

    text: list[int]
    """Tokens taken in, the earlier ones first."""
    _others: int
    """Tokens at its end that the text that is followed does not have."""
    _last: dict[int, dict[int, int]]
    _before: dict[int, array[int]]
    """At (end of a gram) - n: the place where the same gram occurred before, or nowhere."""

    def __init__(self, earlier: Sequence[int] = ()) -> None:
        """``earlier`` stays in front of every text that is followed; it should end with a token
        that no text has. They are taken in when a text is followed.
        """
        self._earlier = earlier
        self._of: Sequence[int] = ()
        self._clear()

    def __len__(self) -> int:
        """Tokens of the text that is followed."""
        return max(0, len(self.text) - self._others - len(self._earlier))

    def follow(
        self, tokens: Sequence[int], upto: int | None = None, most: int = sys.maxsize
    ) -> bool:
        """Make the text that of ``tokens``, or of the first ``upto``; the same list as last time
        has only grown. At most ``most`` tokens are taken in or back; whether those were all. Until
        they are, the index is of another text.
        """
        base = len(self._earlier)
        if tokens is not self._of or len(tokens) < len(self):
            self._of = tokens
            length = base + common_prefix(self.text[base:], tokens)
            self._others = max(0, len(self.text) - length)
            if length < self._others:  # to take the first ones in again is less
                self._clear()
        back = min(self._others, most)
        self._take_back(len(self.text) - back)
        self._others -= back
        end = base + (len(tokens) if upto is None else upto)
        now = len(self.text)
        until = min(end, now + most - back)
        for token in self._earlier[now:until]:
            self._take_in(token)
        for token in tokens[max(0, now - base) : max(0, until - base)]:
            self._take_in(token)
        return not self._others and len(self.text) >= end

    def _clear(self) -> None:
        self.text = []
        self._others = 0
        self._last = {n: {} for n in SIZES}
        self._before = {n: array("i") for n in SIZES}

    def _take_in(self, token: int) -> None:
        text = self.text
        text.append(token)
        end = len(text)
        for n in SIZES:
            if end >= n:
                gram, last = hash(tuple(text[end - n :])), self._last[n]
                self._before[n].append(last.get(gram, _NOWHERE))
                last[gram] = end

    def _take_back(self, length: int) -> None:
        text = self.text
        while len(text) > length:
            end = len(text)
            for n in SIZES:
                if end >= n:
                    gram, last = hash(tuple(text[end - n :])), self._last[n]
                    before = self._before[n].pop()
                    if before == _NOWHERE:
                        del last[gram]
                    else:
                        last[gram] = before
            text.pop()

    def matches(self, most: int) -> list[Occurrence]:
        """At most ``most`` places, the latest of the largest grams; each once, in that order.

        The first gram size that is found anywhere decides; smaller grams fill up what is left.
        """
        found: dict[int, Occurrence] = {}
        if not self._repeats():
            return []
        for n in SIZES:
            for end in self._places(n):
                if len(found) >= most:
                    return list(found.values())
                if end not in found:
                    length = self._length(end)
                    if length >= n:
                        found[end] = Occurrence(end, length)
        return list(found.values())

    def _repeats(self) -> bool:
        """Whether the last token may have been in the text before."""
        before = self._before[SIZES[-1]]
        return bool(before) and before[-1] != _NOWHERE

    def _places(self, n: int) -> Iterator[int]:
        end = len(self.text)
        if end < n:
            return
        at = self._before[n][end - n]
        while at != _NOWHERE:
            yield at
            at = self._before[n][at - n]

    def _length(self, end: int) -> int:
        """The number of tokens before ``end`` that equal those at the end of the text."""
        text, n_tokens = self.text, len(self.text)
        length, most = 0, min(end, LONGEST)
        while length < most and text[end - 1 - length] == text[n_tokens - 1 - length]:
            length += 1
        return length
