"""A llama_batch over numpy memory: filled in a microsecond, never reallocated."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from localspec.core.values import Tokens
from localspec.llama.library import c_api


class Batch:
    """Room for ``capacity`` tokens, each of up to ``width`` sequences.

    The C struct holds raw pointers into the arrays, so they live as long as the object does.
    """

    def __init__(
        self,
        capacity: int,
        width: int = 1,
        *,
        states: int = 0,
        tokens: bool = True,
        dimensions: int = 1,
    ) -> None:
        """With ``states``, each token has a hidden state of ``states`` numbers, and with no
        ``tokens`` it is nothing else; llama.cpp then wants positions of all ``dimensions``,
        one after the other.
        """
        self.capacity = capacity
        self.tokens = np.zeros(capacity, np.int32)
        self.states = np.zeros((capacity, states), np.float32)
        self.positions = np.zeros(capacity * dimensions, np.int32)
        self.outputs = np.zeros(capacity, np.int8)
        self.seqs = np.zeros((capacity, width), np.int32)
        self.seq_counts = np.ones(capacity, np.int32)
        """How many of the sequences in a row of ``seqs`` count."""
        row_size = np.uint64(self.seqs.itemsize * width)
        self._seq_pointers = (
            self.seqs.ctypes.data + np.arange(capacity, dtype=np.uint64) * row_size
        ).astype(np.uint64)
        self._struct: Any = c_api.llama_batch(
            n_tokens=0,
            token=_pointer(self.tokens, c_api.llama_token) if tokens else None,
            embd=_pointer(self.states, ctypes.c_float) if states else None,
            pos=_pointer(self.positions, c_api.llama_pos),
            n_seq_id=_pointer(self.seq_counts, ctypes.c_int32),
            seq_id=_pointer(self._seq_pointers, ctypes.POINTER(c_api.llama_seq_id)),
            logits=_pointer(self.outputs, ctypes.c_int8),
        )

    def place(
        self, at: int, seq: int, position: int, tokens: Tokens, outputs: int, padding: int = 0
    ) -> None:
        """Put a run of one sequence's tokens, the first at ``position``, into the rows from ``at``
        on; the last ``outputs`` of them yield logits. ``padding`` rows follow.
        """
        end = at + len(tokens)
        last = end + padding
        if last == at + 1 and tokens:  # plain decoding: no time for slices
            self.tokens[at], self.positions[at], self.outputs[at] = tokens[0], position, outputs
            self.seqs[at, 0], self.seq_counts[at] = seq, 1
            return
        self.tokens[at:end] = tokens
        self.tokens[end:last] = 0
        self.positions[at:last] = np.arange(position, position + last - at)
        self.seqs[at:last, 0] = seq
        self.seq_counts[at:last] = 1
        self.outputs[at:last] = 0
        self.outputs[end - outputs : end] = 1

    def first(self, n: int) -> Any:
        """The C struct over the first n tokens."""
        self._struct.n_tokens = n
        return self._struct


def _pointer(array: Any, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
