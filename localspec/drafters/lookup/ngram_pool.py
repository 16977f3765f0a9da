"""A pool of n-grams by their first token, the newest first; bounded."""

from __future__ import annotations

from collections import OrderedDict

Gram = tuple[int, ...]
"""The tokens after the first one."""


class NgramPool:
    """The n-grams of one text: at most ``tokens`` first tokens times ``each`` continuations."""

    def __init__(self, tokens: int = 2048, each: int = 16) -> None:
        self._most_tokens = tokens
        self._each = each
        self._grams: OrderedDict[int, list[Gram]] = OrderedDict()
        """Least recently used first token first; continuations oldest first."""

    def __len__(self) -> int:
        return sum(len(grams) for grams in self._grams.values())

    def add(self, token: int, gram: Gram) -> None:
        """Add ``gram`` after ``token``, or make it the newest."""
        grams = self._grams.setdefault(token, [])
        if gram in grams:
            grams.remove(gram)
        elif len(grams) == self._each:
            del grams[0]
        grams.append(gram)
        self._grams.move_to_end(token)
        if len(self._grams) > self._most_tokens:
            self._grams.popitem(last=False)

    def after(self, token: int, most: int) -> list[Gram]:
        """At most ``most`` continuations, the newest first."""
        if most <= 0 or token not in self._grams:
            return []
        self._grams.move_to_end(token)
        return self._grams[token][: -most - 1 : -1]
