"""Heads as draft models: they read the target's hidden states with the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import UnreadyError
from localspec.core.values import Extension, Logits
from localspec.drafters.heads.head_tokens import HeadTokens, each

States = NDArray[np.float32]
"""(tokens, width) hidden states."""


class HiddenStates(Protocol):
    """The target's hidden states of the last tokens in its KV cache."""

    def span(self, seq: int) -> tuple[int, int]:
        """Positions [first, end) whose states are at hand; (0, 0) if none are."""
        ...

    def rows(self, seq: int, first: int, end: int) -> States:
        """States of the tokens at [first, end)."""
        ...


class PairReader(Protocol):
    """A head with a KV cache of pairs: at position i the token at i + 1 and the state at i."""

    @property
    def capacity(self) -> int:
        """Pairs that one sequence may hold."""
        ...

    @property
    def n_batch(self) -> int:
        """Pairs of one pass."""
        ...

    @property
    def depth(self) -> int | None:
        """Tokens that it can guess after the last pair of the target's own; None: any."""
        ...

    def fuse(self, states: States) -> States:
        """The (tokens, width) states of pairs, made of the target's."""
        ...

    def extend(
        self, seq: int, position: int, tokens: Sequence[int], states: States, outputs: int
    ) -> tuple[Logits, States]:
        """Append pairs; logits after the last ``outputs``, and the head's own states there."""
        ...

    def guess(self, seq: int, position: int, token: int, state: States) -> tuple[Logits, States]:
        """Append a pair with a state of the head's own."""
        ...

    @property
    def together(self) -> int:
        """Pairs that `extend_together` takes; 0 where every sequence needs passes of its own."""
        ...

    def extend_together(
        self, work: Sequence[tuple[int, int, Sequence[int], States]]
    ) -> tuple[Logits, States]:
        """Append pairs (sequence, position, tokens, states) of several sequences in one pass;
        logits after the last pair of each, and the head's own states there.
        """
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Forget the pairs from position ``length`` on."""
        ...


@dataclass(slots=True)
class _PairTokens(HeadTokens):
    """The pairs of one sequence that the head has read. That of token j is (j, state of j - 1)."""

    read: int = 0
    """Leading tokens whose pairs are in the cache; the first token has none."""
    sure: int = 0
    """Leading tokens whose pairs were made of the target's own states."""
    own: dict[int, States] = field(default_factory=dict)
    """(width,) states by the head's own guess, of tokens that the target has not read."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Pairs of one sequence that are read in the next pass."""

    seq: int
    position: int
    tokens: Sequence[int]
    new: Sequence[int]
    """Tokens that are appended to the sequence; some may have been read before."""
    states: States
    """Hidden states of the target, or one that the head guessed."""
    guessed: bool


class HeadModel:
    """A `DraftModel` of a head, as EAGLE and multi-token prediction draft with one.

    Drafted tokens are read with the head's own guess of the target's states. Once the target has
    read them too, they are read again with the right ones (Li et al. 2024, "EAGLE", section 3.1).
    Where the states of older tokens are gone, its cache begins later: it then sees less of the
    conversation, and fewer of its drafts are accepted.
    """

    def __init__(self, reader: PairReader, states: HiddenStates, vocabulary: int) -> None:
        """``vocabulary`` is the number of ids that both the head and the target have."""
        self._reader = reader
        self._states = states
        self.vocabulary = vocabulary
        self._sequences: dict[int, _PairTokens] = {}

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        return self._reader.capacity

    @property
    def depth(self) -> int | None:
        """Tokens that it can guess after what the target has read; None: any."""
        return self._reader.depth

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens, see `DraftModel`.

        Raises:
            UnreadyError: the target's states of the tokens before are not at hand, or there is no
                layer for a token so far ahead.
            ContextFullError, Interrupted, DecodeError
        """
        if len(work) == 1:
            return [self._one(*work[0])]
        found = self._together(work)
        return found or each(work, self._kept, self._sequences, self.truncate)

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        cached = self._sequences.get(seq)
        if cached is None or length >= len(cached.tokens):
            return
        del cached.tokens[length:]
        self._forget(seq, cached, length)

    # -- reading -------------------------------------------------------------------------------

    def _together(self, work: Sequence[Extension]) -> list[Logits]:
        """`extend` in one pass over all sequences; nothing where one of them needs several."""
        steps = [self._step(*item) for item in work]
        total = sum(len(step.tokens) for step in steps if step is not None)
        if None in steps or total > self._reader.together:
            return []
        order = sorted((step for step in steps if step is not None), key=lambda step: step.seq)
        states = [step.states for step in order]
        fresh = [i for i, step in enumerate(order) if not step.guessed]
        if fresh:
            fused = self._reader.fuse(np.concatenate([states[i] for i in fresh]))
            ends = np.cumsum([len(states[i]) for i in fresh])[:-1]
            for i, rows in zip(fresh, np.split(fused, ends), strict=True):
                states[i] = rows
        found, own = self._reader.extend_together(
            [(s.seq, s.position, s.tokens, rows) for s, rows in zip(order, states, strict=True)]
        )
        logits: dict[int, Logits] = {}
        for step, row, state in zip(order, found, own, strict=True):
            cached = self._sequences[step.seq]
            cached.tokens += step.new
            cached.read = step.position + 1 + len(step.tokens)
            if step.guessed:
                cached.own[cached.read - 1] = state.copy()
            else:
                cached.sure, cached.own = cached.read, {cached.read - 1: state.copy()}
            logits[step.seq] = row[None, : self.vocabulary].copy()
        return [logits[seq] for seq, _, _ in work]

    def _step(self, seq: int, new: Sequence[int], rows: int) -> _Step | None:
        """The pairs that `extend` has to read of a sequence, where they are one run with one row of
        logits after it.
        """
        cached = self._sequences.setdefault(seq, _PairTokens())
        first, end = self._states.span(seq)
        length = len(cached.tokens) + len(new)
        if rows != 1 or length > self.capacity:
            return None
        if first < cached.sure <= end:  # states that were guessed can be replaced by the target's
            self._forget(seq, cached, cached.sure)
        begin = max(1, cached.read)
        if begin <= first < end and begin - 1 not in cached.own:
            return None  # earlier states are gone
        known = max(begin, min(length, end + 1))
        tokens = [*cached.tokens[begin:], *new[max(0, begin - len(cached.tokens)) :]]
        if begin < known == length:
            states = self._states.rows(seq, begin - 1, known - 1)
            return _Step(seq, begin - 1, tokens, new, states, guessed=False)
        alone = begin == known == length - 1 and begin - 1 in cached.own
        if not alone or (self.depth is not None and begin - cached.sure >= self.depth - 1):
            return None
        return _Step(seq, begin - 1, tokens, new, cached.own[begin - 1][None], guessed=True)

    def _kept(self, seq: int, new: Sequence[int], rows: int) -> Logits:
        return self._one(seq, new, rows).copy()

    def _one(self, seq: int, new: Sequence[int], rows: int) -> Logits:
        cached = self._sequences.setdefault(seq, _PairTokens())
        length = len(cached.tokens)
        with cached.appended(new, self.capacity):
            try:
                logits = self._read(seq, cached, rows)
            except BaseException:
                self._forget(seq, cached, length)
                raise
        return logits[:, : self.vocabulary]

    def _read(self, seq: int, cached: _PairTokens, rows: int) -> Logits:
        tokens = cached.tokens
        first, end = self._states.span(seq)
        if first < cached.sure <= end:  # states that were guessed can be replaced by the target's
            self._forget(seq, cached, cached.sure)
        begin = max(1, cached.read)
        if begin <= first < end:  # the states before are gone
            self._forget(seq, cached, 0)
            begin = first + 1
        known = max(begin, min(len(tokens), end + 1))
        if rows == 0:
            self._with_states(seq, cached, begin, known, 0)
            return np.empty((0, self.vocabulary), np.float32)
        alone = len(tokens) - known
        ready = known > begin or begin - 1 in cached.own
        if rows > len(tokens) - begin or (alone and not ready):
            raise UnreadyError("the target's states are not at hand")
        outputs = max(rows - alone, min(alone, 1))
        found = self._with_states(seq, cached, begin, known, outputs)
        for j in range(known, len(tokens)):
            found = [*(part.copy() for part in found), self._alone(seq, cached, j)]
        return (found[0] if len(found) == 1 else np.concatenate(found))[-rows:]

    def _with_states(
        self, seq: int, cached: _PairTokens, begin: int, end: int, outputs: int
    ) -> list[Logits]:
        """Read the pairs of tokens [begin, end) with the target's states."""
        found: list[Logits] = []
        step = self._reader.n_batch
        for at in range(begin, end, step):
            stop = min(at + step, end)
            states = self._reader.fuse(self._states.rows(seq, at - 1, stop - 1))
            wanted = max(0, min(stop - at, outputs - (end - stop)))
            here, own = self._reader.extend(seq, at - 1, cached.tokens[at:stop], states, wanted)
            cached.read = cached.sure = stop
            cached.own = {stop - 1: own[-1].copy()} if wanted else {}
            if wanted:
                found = [*(part.copy() for part in found), here]
        return found

    def _alone(self, seq: int, cached: _PairTokens, j: int) -> Logits:
        """Read the pair of token j with the head's own guess of the state before it."""
        if self.depth is not None and j - cached.sure >= self.depth - 1:
            raise UnreadyError("there is no layer for a token so far ahead")
        logits, own = self._reader.guess(seq, j - 1, cached.tokens[j], cached.own[j - 1])
        cached.read = j + 1
        cached.own[j] = own[-1].copy()
        return logits

    def _forget(self, seq: int, cached: _PairTokens, length: int) -> None:
        """Forget the pairs of all tokens but the first ``length``."""
        if length < cached.read:
            self._reader.truncate(seq, max(0, length - 1))
            cached.read = length
        cached.sure = min(cached.sure, length)
        cached.own = {j: state for j, state in cached.own.items() if j < length}
