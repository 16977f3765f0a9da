"""The interface of a draft model, and the errors that end a draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from localspec.core.errors import ContextFullError, PassRefusedError, UnreadyError
from localspec.core.values import Extension, Logits

CANNOT = (ContextFullError, PassRefusedError, UnreadyError)
"""Errors of the draft model, which end a draft and never the reply."""


class DraftModel(Protocol):
    """A language model with a KV cache, or a head that behaves like one."""

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
        ...

    @property
    def vocabulary(self) -> int:
        """Ids that it can read and propose."""
        ...

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens (at least one) to sequences in one pass.

        Returns (rows, V) logits for each, valid until the next pass. If it raises, nothing was
        appended; ContextFullError where they do not fit, UnreadyError where something is missing.
        """
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        ...


@runtime_checkable
class SavesDraftState(Protocol):
    """A draft model whose sequences can be copied out of its KV cache as bytes, and back."""

    @property
    def identity(self) -> str:
        """Names everything that a state depends on."""
        ...

    def state(self, seq: int) -> memoryview:
        """The sequence's part of the KV cache."""
        ...

    def restore(self, seq: int, state: memoryview, length: int) -> None:
        """Replace the sequence by the first ``length`` tokens of a saved state.

        Raises:
            DecodeError: it cannot; the sequence is then empty.
        """
        ...

    def can_truncate(self, seq: int, length: int) -> bool:
        """Whether the sequence can be truncated to ``length``: a restored one has no more of
        sliding layers than its last token saw.
        """
        ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of leading tokens that are equal."""
    n = min(len(a), len(b))
    if n == 0:
        return 0
    differ = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differ[0]) if len(differ) else n
