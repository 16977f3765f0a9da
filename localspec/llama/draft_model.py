"""A draft model on llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.values import Logits, Tokens
from localspec.errors import ContextFullError
from localspec.llama.context import Context


class LlamaDraftModel:
    """A `DraftModel`; rows are cut to the ids that the target knows too."""

    def __init__(self, context: Context, target_vocab: int) -> None:
        self._context = context
        self.vocabulary = min(context.model.n_vocab, target_vocab)

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    def extend(self, work: Sequence[tuple[int, Tokens, int]]) -> list[Logits]:
        """Append tokens; (rows, V) logits after the last ``rows`` tokens of each. If it raises,
        nothing was added.

        Raises:
            ContextFullError, Interrupted, DecodeError
        """
        before = [(seq, self._context.length(seq)) for seq, _, _ in work]
        for (_, length), (_, tokens, _) in zip(before, work, strict=True):
            if length + len(tokens) > self._context.capacity:  # before most of it is read in vain
                raise ContextFullError("the draft model's context is full")
        room = self._context.n_batch // len(work)
        try:
            last = []
            for seq, tokens, rows in work:
                surplus = max(0, len(tokens) - room)
                if surplus:
                    self._context.read(seq, tokens[:surplus])
                last.append((seq, tokens[surplus:], rows))
            found = self._context.forward(last)
        except BaseException:
            for seq, length in before:
                self._context.truncate(seq, length)
            raise
        return [rows[:, : self.vocabulary] for rows in found]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        self._context.truncate(seq, length)
