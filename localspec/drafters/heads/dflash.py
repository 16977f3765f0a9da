"""A head that drafts whole blocks as a draft model (Chen et al. 2026, "DFlash")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.core.errors import UnreadyError
from localspec.core.values import Extension, Logits
from localspec.drafters.heads.eagle import HiddenStates, States
from localspec.drafters.heads.head_tokens import HeadTokens, each


class Filler(Protocol):
    """A head with a KV cache of the target's states."""

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        ...

    def inject(self, seq: int, position: int, states: States) -> None:
        """Append states of the target's tokens from ``position`` on."""
        ...

    def fill(self, seq: int, position: int, token: int) -> Logits:
        """(n, V) logits of the tokens after the pending one at ``position``."""
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Forget the states from position ``length`` on."""
        ...


@dataclass(slots=True)
class _BlockTokens(HeadTokens):
    """The state of one sequence."""

    read: int = 0
    """The target's tokens up to here have their states in the cache."""
    base: int = 0
    """Index of the token that the block begins with."""
    block: Logits | None = None
    """(n, V) logits after that token and the drafted ones behind it."""


class BlockModel:
    """A `DraftModel` of a block drafter.

    One pass guesses all tokens after the pending one. None of them sees which token is drawn before
    it, so a draft's q at each place is the same whatever the others are.
    """

    def __init__(self, filler: Filler, states: HiddenStates, vocabulary: int) -> None:
        """``vocabulary`` is the number of ids that both the head and the target have."""
        self._filler = filler
        self._states = states
        self.vocabulary = vocabulary
        self._sequences: dict[int, _BlockTokens] = {}

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        return self._filler.capacity

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens, see `DraftModel`.

        Raises:
            UnreadyError: logits are wanted of tokens that the target has read, or beyond the block;
                or its states of the tokens before are not at hand.
            ContextFullError, Interrupted, DecodeError
        """
        return each(work, self._one, self._sequences, self.truncate)

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        cached = self._sequences.get(seq)
        if cached is None or length >= len(cached.tokens):
            return
        del cached.tokens[length:]
        if length <= cached.base:
            cached.block = None
        if length < cached.read:
            self._filler.truncate(seq, length)
            cached.read = length

    def _one(self, seq: int, new: Sequence[int], rows: int) -> Logits:
        cached = self._sequences.setdefault(seq, _BlockTokens())
        try:
            with cached.appended(new, self.capacity):
                return self._rows(seq, cached, rows)
        except BaseException:
            if cached.read > len(cached.tokens):  # states of tokens that were taken back
                cached.read = len(cached.tokens)
                self._filler.truncate(seq, cached.read)
            cached.block = None
            raise

    def _rows(self, seq: int, cached: _BlockTokens, rows: int) -> Logits:
        tokens = cached.tokens
        end = self._read(seq, cached, len(tokens))
        if not rows:
            return np.empty((0, self.vocabulary), np.float32)
        begin = len(tokens) - rows - end
        if begin < 0 or cached.read != end:
            raise UnreadyError("the target's states are not at hand")
        if cached.block is None or cached.base != end:
            block = self._filler.fill(seq, end, tokens[end])
            # Views are overwritten by the pass for another sequence.
            cached.base, cached.block = end, block if len(self._sequences) == 1 else block.copy()
        if begin + rows > len(cached.block):
            raise UnreadyError("the block ends before that token")
        return cached.block[begin : begin + rows, : self.vocabulary]

    def _read(self, seq: int, cached: _BlockTokens, length: int) -> int:
        """Have the states of what the target has read in the cache; how many tokens that is."""
        first, end = self._states.span(seq)
        end = min(end, length)
        if first >= end:  # none at hand
            return end
        if cached.read < first:  # earlier states are no longer stored
            self._filler.truncate(seq, 0)
            cached.read = first
        elif cached.read > end:
            self._filler.truncate(seq, end)
            cached.read = end
        if cached.read < end:
            cached.block = None  # the pass overwrites it
            try:
                self._filler.inject(seq, cached.read, self._states.rows(seq, cached.read, end))
            except BaseException:
                self._filler.truncate(seq, cached.read)
                raise
            cached.read = end
        return end
