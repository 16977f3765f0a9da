"""What a draft model has read: its KV cache, kept a prefix of each request's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.core.values import Logits
from localspec.drafters.base import Committed
from localspec.drafters.model.interface import DraftModel, common_prefix


@dataclass(slots=True)
class _Read:
    """What the cache holds of one sequence."""

    held: list[int] = field(default_factory=list)
    """Its tokens, the rejected ones only between propose and commit."""
    of: Sequence[int] | None = None
    """The token list that ``held`` is known to be a prefix of."""


class DraftCache:
    """A draft model, and the books of what its cache holds."""

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._read: dict[int, _Read] = {}

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._model.capacity

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the cache."""
        read = self._read.get(seq)
        return len(read.held) if read else 0

    def readable(self, tokens: Sequence[int]) -> bool:
        """Whether the model has all these ids; padded vocabularies differ in size."""
        return all(token < self._model.vocabulary for token in tokens)

    def follows(self, seq: int, tokens: Sequence[int]) -> bool:
        """Whether the cache is of this very list of tokens, which grows with its request."""
        read = self._read.get(seq)
        return read is not None and read.of is tokens

    def missing(self, seq: int, tokens: Sequence[int]) -> Sequence[int]:
        """Make the cache a proper prefix of the request's tokens; returns those missing."""
        read = self._read.setdefault(seq, _Read())
        if read.of is not tokens:
            self._cut(seq, read, common_prefix(read.held, tokens))
            read.of = tokens
        self._cut(seq, read, len(tokens) - 1)
        return tokens[len(read.held) :]

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        """Read tokens, see `DraftModel.extend`; their sequences were asked for by `missing`.

        Raises:
            ContextFullError, UnreadyError: nothing was read.
        """
        rows = self._model.extend(work)
        for seq, tokens, _ in work:
            self._read[seq].held.extend(tokens)
        return rows

    def keep(self, news: Committed) -> None:
        """Drop what is not in the request any more."""
        read = self._read[news.seq]
        stands = len(news.known) - len(news.tokens)
        end = min(len(news.known), len(read.held))
        while stands < end and read.held[stands] == news.known[stands]:
            stands += 1
        self._cut(news.seq, read, stands)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        if self._read.pop(seq, None) is not None:
            self._model.truncate(seq, 0)

    def _cut(self, seq: int, read: _Read, length: int) -> None:
        if length < len(read.held):
            self._model.truncate(seq, length)
            del read.held[length:]


__all__ = ["DraftCache"]
