"""A draft model's KV cache, kept a prefix of each request's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from localspec.core.errors import DecodeError
from localspec.core.values import Extension, Logits
from localspec.drafters.base import Committed, DraftState
from localspec.drafters.model.interface import DraftModel, SavesDraftState, common_prefix


@dataclass(slots=True)
class _CachedSequence:
    """The cached tokens of one sequence."""

    tokens: list[int] = field(default_factory=list)
    """Rejected tokens are among them only between propose and commit."""
    of: Sequence[int] | None = None
    """The token list of the request that ``tokens`` is known to be a prefix of."""
    other: Sequence[int] | None = None
    """The token list that was compared with ``tokens`` last, since those changed."""
    common: int = 0
    """Tokens at the beginning of both."""


class DraftCache:
    """A draft model together with the tokens in its KV cache."""

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._saves = model if isinstance(model, SavesDraftState) else None
        self._sequences: dict[int, _CachedSequence] = {}

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        return self._model.capacity

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the cache."""
        sequence = self._sequences.get(seq)
        return len(sequence.tokens) if sequence else 0

    def readable(self, tokens: Sequence[int]) -> bool:
        """Whether the model has all these ids; padded vocabularies differ in size."""
        return all(token < self._model.vocabulary for token in tokens)

    def belongs_to(self, seq: int, tokens: Sequence[int]) -> bool:
        """Whether the cache is of this very list of tokens, which grows with its request."""
        sequence = self._sequences.get(seq)
        return sequence is not None and sequence.of is tokens

    def common(self, seq: int, tokens: Sequence[int]) -> int:
        """How many of the request's first tokens are cached, and can be kept."""
        sequence = self._sequences.get(seq)
        if sequence is None:
            return 0
        if sequence.of is tokens:
            return min(len(sequence.tokens), len(tokens))
        if sequence.other is not tokens:
            sequence.other, sequence.common = tokens, common_prefix(sequence.tokens, tokens)
        end = min(len(sequence.tokens), len(tokens))
        at = min(sequence.common, end)
        while at < end and sequence.tokens[at] == tokens[at]:  # a list of tokens only grows
            at += 1
        sequence.common = at
        return at if self._can_cut(seq, sequence, at) else 0

    def missing(self, seq: int, tokens: Sequence[int]) -> Sequence[int]:
        """Cut the cache to a proper prefix of the request's tokens; returns the rest of them."""
        sequence = self._sequences.setdefault(seq, _CachedSequence())
        if sequence.of is not tokens:
            self._cut(seq, sequence, common_prefix(sequence.tokens, tokens))
            sequence.of = tokens
        self._cut(seq, sequence, len(tokens) - 1)
        return tokens[len(sequence.tokens) :]

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Read tokens, see `DraftModel.extend`. Call `missing` for each sequence before.

        Raises:
            ContextFullError, UnreadyError: nothing was read.
        """
        rows = self._model.extend(work)
        for seq, tokens, _ in work:
            self._sequences[seq].tokens.extend(tokens)
            self._sequences[seq].other = None
        return rows

    def keep(self, committed: Committed) -> None:
        """Drop cached tokens that are no longer part of the request."""
        sequence = self._sequences[committed.seq]
        length = len(committed.all_tokens) - len(committed.new_tokens)
        end = min(len(committed.all_tokens), len(sequence.tokens))
        while length < end and sequence.tokens[length] == committed.all_tokens[length]:
            length += 1
        self._cut(committed.seq, sequence, length)

    def state(self, seq: int, tokens: Sequence[int]) -> dict[str, DraftState]:
        """See `Drafter.state`; empty for a model that cannot save its cache."""
        sequence = self._sequences.get(seq)
        if sequence is None or self._saves is None:
            return {}
        length = len(sequence.tokens)
        if not 0 < min(length, len(tokens)) <= common_prefix(sequence.tokens, tokens):
            return {}
        return {self._saves.identity: DraftState(length, self._saves.state(seq))}

    def restore(self, seq: int, tokens: Sequence[int], states: Mapping[str, DraftState]) -> None:
        """See `Drafter.restore`: what cannot be restored is read again."""
        if self._saves is None:
            return
        saved = states.get(self._saves.identity)
        sequence = self._sequences.get(seq)
        if saved is None or (sequence and common_prefix(sequence.tokens, tokens) >= saved.length):
            return
        length = min(saved.length, len(tokens))
        try:
            self._saves.restore(seq, saved.state, length)
        except DecodeError:
            length = 0
        self._sequences[seq] = _CachedSequence(list(tokens[:length]))

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        if self._sequences.pop(seq, None) is not None:
            self._model.truncate(seq, 0)

    def _can_cut(self, seq: int, sequence: _CachedSequence, length: int) -> bool:
        if length >= len(sequence.tokens) or self._saves is None:
            return True
        return self._saves.can_truncate(seq, length)

    def _cut(self, seq: int, sequence: _CachedSequence, length: int) -> None:
        """Forget the tokens from ``length`` on; all of them where a part cannot be forgotten."""
        if length < len(sequence.tokens):
            length = length if self._can_cut(seq, sequence, length) else 0
            self._model.truncate(seq, length)
            del sequence.tokens[length:]
            sequence.other = None
