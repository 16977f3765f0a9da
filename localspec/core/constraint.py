"""The seam between logits processing and grammars: which tokens may come next.

Letters: V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.core.values import Draft, Ids

Words = NDArray[np.uint32]
"""(ceil(V / 32),) one bit for each token, the lowest bit first."""


class TokenMask:
    """The tokens that may come next."""

    def __init__(self, words: Words) -> None:
        """``words`` is not copied."""
        self.words = words

    @functools.cached_property
    def count(self) -> int:
        """How many they are."""
        return int(np.bitwise_count(self.words).sum())

    @functools.cached_property
    def only(self) -> int | None:
        """The token, where a single one may come."""
        if self.count != 1:
            return None
        word = int(np.flatnonzero(self.words)[0])
        return 32 * word + int(self.words[word]).bit_length() - 1

    @functools.cached_property
    def ids(self) -> Ids:
        """(count,) the tokens, ascending."""
        filled = np.flatnonzero(self.words)
        bits = np.unpackbits(self.words[filled].view(np.uint8), bitorder="little")
        places = np.flatnonzero(bits)
        found: Ids = (32 * filled[places >> 5] + (places & 31)).astype(np.int32)
        return found

    def allows(self, ids: Ids) -> NDArray[np.bool_]:
        """(n,) whether each of the tokens ``ids`` (n,) may come."""
        inside = ids < 32 * len(self.words)
        words = self.words[np.where(inside, ids, 0) // 32]
        allowed: NDArray[np.bool_] = inside & (words >> (ids % 32).astype(np.uint32) & 1).astype(
            np.bool_
        )
        return allowed

    def allows_token(self, token: int) -> bool:
        """Whether one token may come."""
        word = token >> 5
        return word < len(self.words) and bool(int(self.words[word]) >> (token & 31) & 1)


class Constraint(Protocol):
    """The rules that one reply must follow. All answers are functions of the tokens before a place.

    ``before`` is always the whole sequence: prompt, emitted tokens and the drafted ones before the
    place. Emitted tokens must have been passed to `take`.
    """

    def mask(self, before: Sequence[int]) -> TokenMask | None:
        """The tokens that may come next; None where all may.

        Raises:
            GrammarError: none may, or the grammar is too complex to be followed.
        """

    def forced(self, before: Sequence[int]) -> list[int]:
        """The tokens that come next whatever the model says, as far as they are known."""

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of ``tokens`` may follow one after the other."""

    def over(self, before: Sequence[int]) -> bool:
        """Whether nothing but an end of the reply may follow."""

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        """Compute the masks of all rows of a draft in another thread, for `mask` to find."""

    def take(self, before: Sequence[int]) -> bool:
        """The last token of ``before`` was emitted; whether the reply is complete with it.

        Raises:
            AuditError: it is a token that the mask forbids.
        """

    @property
    def complete(self) -> bool:
        """Whether the emitted tokens may end here."""

    def fits(self, before: Sequence[int], rest: str) -> bool:
        """Whether a reply that was cut may end after ``before`` and the text ``rest``, with which
        the next emitted token begins. Nothing else is asked afterwards.
        """
