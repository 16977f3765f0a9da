"""A head that attends to the target's own KV cache as a draft model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from localspec.core.errors import ContextFullError, UnreadyError
from localspec.core.values import Extension, Logits
from localspec.drafters.heads.eagle import HiddenStates, States
from localspec.drafters.heads.head_tokens import HeadTokens


class Guesser(Protocol):
    """A head without a cache: every pass is about what follows the target's tokens."""

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        ...

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the target's cache."""
        ...

    def guesses(self, work: Sequence[tuple[int, int, States]]) -> tuple[Logits, States]:
        """(n, V) logits after (sequence, token, state of the token before), and states."""
        ...


@dataclass(slots=True)
class _SharedTokens(HeadTokens):
    """Tokens of one sequence, and the states guessed for those that the target has not read."""

    begin: int = 0
    """Tokens that the target had read when `own` was guessed."""
    own: list[States] = field(default_factory=list)


@dataclass(slots=True)
class _Guesses:
    """Tokens of one sequence to be computed, one a pass."""

    seq: int
    cached: _SharedTokens
    todo: Sequence[int]
    state: States
    """State of the token before."""
    rows: int
    found: list[Logits] = field(default_factory=list)


class SharedModel:
    """A `DraftModel` of a head that keeps nothing of its own (Gemma 4's assistants).

    Its only state is the chain of guesses after the target's last token, so it can say what follows
    the target's text, and nothing about earlier places.
    """

    def __init__(self, reader: Guesser, states: HiddenStates, vocabulary: int) -> None:
        """``vocabulary`` is the number of ids that both the head and the target have."""
        self._reader = reader
        self._states = states
        self.vocabulary = vocabulary
        self._sequences: dict[int, _SharedTokens] = {}

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        return self._reader.capacity

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens, see `DraftModel`.

        Raises:
            UnreadyError: logits are wanted of tokens that the target has read, or its states of
                the last one are not at hand.
            ContextFullError, Interrupted, DecodeError
        """
        chains = [self._guesses(*item) for item in work]
        try:
            while active := [chain for chain in chains if chain.todo]:
                self._step(active)
        except BaseException:
            for chain in chains:  # drop guesses of tokens that were not appended
                del chain.cached.own[max(0, len(chain.cached.tokens) - chain.cached.begin) :]
            raise
        for chain, (_, new, _) in zip(chains, work, strict=True):
            chain.cached.tokens += new
        return [self._last(chain) for chain in chains]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        cached = self._sequences.get(seq)
        if cached is not None:
            del cached.tokens[length:]
            del cached.own[max(0, length - cached.begin) :]

    def _guesses(self, seq: int, new: Sequence[int], rows: int) -> _Guesses:
        cached = self._sequences.setdefault(seq, _SharedTokens())
        length = len(cached.tokens) + len(new)
        if length > self.capacity:
            raise ContextFullError("the head's context is full")
        nothing = np.empty(0, np.float32)
        if rows == 0:
            return _Guesses(seq, cached, (), nothing, 0)
        first, end = self._states.span(seq)
        if cached.begin != end:
            cached.begin, cached.own = end, []
        begin = end + len(cached.own)
        if not first < end or rows > length - begin or self._reader.length(seq) != end:
            raise UnreadyError("the target's states are not at hand")
        state = cached.own[-1] if cached.own else self._states.rows(seq, end - 1, end)[0]
        missing = [*cached.tokens[begin:], *new[max(0, begin - len(cached.tokens)) :]]
        return _Guesses(seq, cached, missing, state, rows)

    def _step(self, active: list[_Guesses]) -> None:
        """One pass over the next token of each."""
        for chain in active:  # the pass overwrites what was found
            chain.found = [row.copy() for row in chain.found]
        logits, states = self._reader.guesses([(c.seq, c.todo[0], c.state) for c in active])
        for chain, row, state in zip(active, logits, states, strict=True):
            if len(chain.todo) <= chain.rows:
                chain.found.append(row)
            chain.state = state.copy()
            chain.cached.own.append(chain.state)
            chain.todo = chain.todo[1:]

    def _last(self, chain: _Guesses) -> Logits:
        if not chain.rows:
            return np.empty((0, self.vocabulary), np.float32)
        found = chain.found
        rows = found[0][None] if len(found) == 1 else np.stack(found)
        return rows[:, : self.vocabulary]
