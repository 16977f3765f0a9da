"""A pass of llama.cpp: its batch over numpy memory, the flag to stop it, the logits after it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.values import Logits, Tokens
from localspec.llama.library import c_api
from localspec.llama.model import Model

_PLACES = 256
"""Most arrays that are cached; llama.cpp moves its buffer now and then."""


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


def batches_of_states(
    states: NDArray[np.float32], positions: NDArray[np.int32], seq: int, most: int
) -> Iterator[tuple[Batch, int]]:
    """(n, width) states of a sequence and (dimensions, n) their positions as batches without
    outputs, each with its number of rows: at most ``most``.
    """
    for at in range(0, len(states), most):
        part = states[at : at + most]
        n, width = part.shape
        batch = Batch(n, states=width, tokens=False, dimensions=len(positions))
        batch.states[:] = part
        batch.positions[:] = positions[:, at : at + n].ravel()
        batch.seqs[:, 0] = seq
        yield batch, n


def _pointer(array: Any, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


class StopFlag:
    """Set from any thread; llama.cpp looks at it between the operations of a graph.

    llama.cpp calls ``bool abort(void *data)`` some hundred times a pass. A Python function there
    would cost a microsecond each time, and wait for the interpreter whenever another thread has
    it. So the callback is C's own ``strlen``, and the data a C string: empty means go on.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        strlen = getattr(ctypes.pythonapi, "strlen", None) or ctypes.CDLL(None).strlen
        self.callback: Any = ctypes.cast(strlen, c_api.ggml_abort_callback)
        self.data = ctypes.cast(self._text, ctypes.c_void_p)

    def set(self) -> None:
        """Stop the running pass and those to come."""
        self._text[0] = b"\x01"

    def clear(self) -> None:
        """Let passes run again."""
        self._text[0] = b"\x00"

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._text.raw[0] != 0


class LastLogits:
    """Views of a context's rows; the next pass overwrites them."""

    def __init__(self, context: Any, model: Model) -> None:
        """``context`` is the llama_context pointer, of that model."""
        self._context = context
        self._model, self._n_vocab = model, model.n_vocab
        self._arrays: dict[tuple[int, int], Logits] = {}
        """Arrays by address and number of rows: looking one up is cheaper than making it."""

    def views(self, counts: Sequence[int]) -> list[Logits]:
        """The rows of the pass in order, as (count, V) views, one for each count."""
        total = sum(counts)
        if total == 0:
            return [np.empty((0, self._n_vocab), np.float32) for _ in counts]
        # Waits for the device; llama_decode alone may return before a GPU is done.
        with self._model.answering():
            pointer = c_api.llama_get_logits(self._context)
        key = (ctypes.addressof(pointer.contents), total)
        rows = self._arrays.get(key)
        if rows is None:
            if len(self._arrays) > _PLACES:
                self._arrays.clear()
            rows = np.ctypeslib.as_array(pointer, shape=(total, self._n_vocab))
            self._arrays[key] = rows
        if len(counts) == 1:
            return [rows]
        views, at = [], 0
        for count in counts:
            views.append(rows[at : at + count])
            at += count
        return views
