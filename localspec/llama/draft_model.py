"""A draft model on llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.core.errors import ContextFullError, DecodeError
from localspec.core.media_rows import has_rows, runs
from localspec.core.values import Extension, Logits, Tokens
from localspec.llama import library
from localspec.llama import state as saved
from localspec.llama.context import Context
from localspec.llama.devices import backend, driver


class LlamaDraftModel:
    """A `DraftModel`; rows are cut to the ids that the target knows too."""

    def __init__(self, context: Context, target_vocab: int) -> None:
        self._context = context
        self.vocabulary = min(context.model.n_vocab, target_vocab)
        model = context.model
        facts = [context.kv_type, context.sequences, context.branches, library.commit()]
        facts += [context.capacity, context.flash_attention, backend(), driver()]
        facts += [model.gpu_layers, model.host_experts, *model.buffers]
        self.identity = f"{model.digest} {facts}"
        """Names everything that a state depends on."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        return self._context.capacity

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
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
            for seq, whole, rows in work:
                tokens = self._without_pictures(seq, whole)
                surplus = max(0, len(tokens) - room)
                if surplus:
                    self._context.read(seq, tokens[:surplus])
                last.append((seq, tokens[surplus:], rows))
            if not any(tokens for _, tokens, _ in last):  # pictures alone
                return [np.empty((0, self.vocabulary), np.float32) for _ in last]
            found = self._context.forward(last)
        except BaseException:
            for seq, length in before:
                self._context.truncate(seq, length)
            raise
        return [rows[:, : self.vocabulary] for rows in found]

    def _without_pictures(self, seq: int, tokens: Tokens) -> Tokens:
        """Read the tokens up to the last picture, and return those after it: this model cannot see,
        and reads the text around a picture.
        """
        if not has_rows(tokens):
            return tokens
        parts = [*runs(tokens)]
        while parts and any(picture for _, _, picture in parts):
            start, end, picture = parts.pop(0)
            if picture:
                self._context.skip(seq, end - start)
            else:
                self._context.read(seq, tokens[start:end])
        return tokens[parts[0][0] :] if parts else tokens[:0]

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        self._context.truncate(seq, length)

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether the sequence can be truncated to ``length``."""
        return self._context.can_truncate(seq, length)

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""
        return saved.state(self._context, seq)

    def restore(self, seq: int, state: memoryview, length: int) -> None:
        """Replace the sequence by the first ``length`` tokens of a saved state.

        Raises:
            DecodeError: it cannot; the sequence is then empty.
        """
        context = self._context
        saved.restore(context, seq, state)
        try:
            context.truncate(seq, length)
        except DecodeError:
            context.truncate(seq, 0)
            raise
        if context.length(seq) != length:
            context.truncate(seq, 0)
            raise DecodeError("a draft model's state of another length than its tokens")
