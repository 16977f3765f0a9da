"""A constraint made of a rule, for laws on tables: no grammar library, every mask plain to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.constraint import TokenMask
from localspec.core.values import Draft

END = 0
"""The only token that may follow a reply that is over."""

Rule = Callable[[Sequence[int]], set[int]]
"""The tokens that may follow those of the reply so far; none where it is over."""


def turns(reply: Sequence[int]) -> set[int]:
    """A rule over four tokens: 0 forces 3 and then 1, elsewhere there is a choice."""
    if not reply:
        return {0, 1, 2}
    if tuple(reply[-2:]) == (0, 3):
        return {1}
    return {0: {3}, 1: {0, 2, 3}, 2: {0, 1}, 3: {1, 2}}[reply[-1]]


class Ruled:
    """A `Constraint` that asks a rule."""

    def __init__(self, rule: Rule, start: int) -> None:
        self._rule, self._start = rule, start
        self.complete = False
        self.expected: list[int] = []
        """Widths of the drafts whose masks were to be computed."""

    def mask(self, before: Sequence[int]) -> TokenMask | None:
        return TokenMask(_words(self._rule(before[self._start :]) or {END}))

    def forced(self, before: Sequence[int]) -> list[int]:
        found: list[int] = []
        while len(found) < 40 and len(may := self._rule([*before[self._start :], *found])) == 1:
            found += may
        return found

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        for n, token in enumerate(tokens):
            if token not in self._rule([*before[self._start :], *tokens[:n]]):
                return n
        return len(tokens)

    def over(self, before: Sequence[int]) -> bool:
        return len(before) > self._start and not self._rule(before[self._start :])

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        self.expected.append(len(draft))

    def take(self, before: Sequence[int]) -> bool:
        assert before[-1] in self._rule(before[self._start : -1]), "a forbidden token was emitted"
        self.complete = self.over(before)
        return self.complete

    def fits(self, before: Sequence[int], rest: str) -> bool:
        return not rest and self.over(before)


def _words(tokens: set[int]) -> np.ndarray:
    word = sum(1 << token for token in tokens)
    return np.array([word], np.uint32)
