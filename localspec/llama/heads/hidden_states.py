"""Hidden states of the target, for heads that draft from them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.llama import experimental
from localspec.llama.library import c_api

States = NDArray[np.float32]
"""(tokens, width) hidden states."""

_WINDOW = 512
"""Tokens whose states are kept at most: a head reads them soon, and they are large."""


class Tap(Protocol):
    """A source of hidden states."""

    @property
    def width(self) -> int:
        """Numbers for each token."""
        ...

    @property
    def of_outputs(self) -> bool:
        """Whether only tokens with logits have states: then none while a prompt is read."""
        ...

    def open(self, context: Any) -> None:
        """Have llama.cpp keep them from the next pass of this context on."""
        ...

    def rows(self, context: Any, n: int) -> States:
        """(n, width) a copy of the states of all tokens of the last pass."""
        ...


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Inputs of some layers, concatenated, for EAGLE-3 (Li et al. 2025, section 3.1)."""

    layers: tuple[int, ...]
    n_embd: int
    of_outputs: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """The sum over the layers."""
        return self.n_embd * len(self.layers)

    def open(self, context: Any) -> None:
        """See `Tap`."""
        for layer in self.layers:
            experimental.required("an EAGLE-3 head").set_layer_input(context, layer, True)

    def rows(self, context: Any, n: int) -> States:
        """See `Tap`."""
        get = experimental.required("an EAGLE-3 head").get_layer_input
        return np.hstack([_rows(get(context, layer), n, self.n_embd) for layer in self.layers])


@dataclass(frozen=True, slots=True)
class NextStates:
    """The states that the target's own layer for multi-token prediction continues from."""

    n_embd: int
    of_outputs: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """The width of the residual stream."""
        return self.n_embd

    def open(self, context: Any) -> None:
        """See `Tap`."""
        experimental.required("multi-token prediction").set_nextn(context, True, False)

    def rows(self, context: Any, n: int) -> States:
        """See `Tap`."""
        get = experimental.required("multi-token prediction").get_nextn
        return _rows(get(context), n, self.n_embd).copy()


@dataclass(frozen=True, slots=True)
class FinalStates:
    """The input of the output matrix, as Medusa's heads read it (Cai et al. 2024)."""

    n_embd: int
    of_outputs: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """The width of the residual stream."""
        return self.n_embd

    def open(self, context: Any) -> None:
        """See `Tap`; a context switches these on pass by pass."""

    def rows(self, context: Any, n: int) -> States:
        """See `Tap`."""
        return _rows(c_api.llama_get_embeddings(context), n, self.n_embd).copy()


def _rows(pointer: Any, n: int, width: int) -> States:
    if not pointer:
        raise RuntimeError("llama.cpp kept no hidden states of the last pass")
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (n, width))


@dataclass(slots=True)
class _Stored:
    """Rows of one sequence, in a buffer that is moved to its front when it is full."""

    first: int
    """Position of the first row."""
    buffer: States
    start: int = 0
    """Positions of the rows in the buffer."""
    count: int = 0

    @property
    def rows(self) -> States:
        return self.buffer[self.start : self.start + self.count]

    def append(self, rows: States, window: int) -> None:
        if self.start + self.count + len(rows) > len(self.buffer):
            kept = self.rows[max(0, self.count + len(rows) - window) :].copy()
            self.first += self.count - len(kept)
            self.start, self.count = 0, len(kept)
            self.buffer[: len(kept)] = kept
        end = self.start + self.count
        self.buffer[end : end + len(rows)] = rows
        self.count += len(rows)


class StoredStates:
    """The states of the last tokens in the target's KV cache, by sequence and position.

    The owner of the KV cache keeps it in step: what is forgotten there is forgotten here.
    """

    def __init__(self, tap: Tap, window: int = _WINDOW) -> None:
        """At least the last ``window`` tokens are kept, and at most twice as many."""
        self.tap = tap
        self._window = window
        self._stored: dict[int, _Stored] = {}

    def put(self, seq: int, position: int, rows: States) -> None:
        """States of the tokens from ``position`` on, in place of all that was there and behind."""
        self.cut(seq, position)
        surplus = max(0, len(rows) - self._window)
        rows, position = rows[surplus:], position + surplus
        stored = self._stored.get(seq)
        if stored is None or stored.first + stored.count != position:  # nothing, or a gap
            buffer = np.empty((2 * self._window, self.tap.width), np.float32)
            stored = self._stored[seq] = _Stored(position, buffer)
        stored.append(rows, self._window)

    def asks_of(self, tokens: int, outputs: int) -> bool:
        """Whether a pass over so many tokens has to make outputs of all of them, of which a context
        makes at most ``outputs``, for their states.
        """
        return self.tap.of_outputs and tokens <= outputs

    def take(
        self, context: Any, parts: Sequence[tuple[int, int, int, int]], *, asked: bool
    ) -> None:
        """Store the states of the last pass, whose sequences had (number, first position, tokens,
        tokens of padding behind them); where it had none, forget those that it replaces.

        ``asked``: its outputs were those of all tokens, see `asks_of`.
        """
        if self.tap.of_outputs and not asked:
            for seq, start, _, _ in parts:
                self.cut(seq, start)
            return
        states = self.tap.rows(context, sum(width + more for _, _, width, more in parts))
        for seq, start, width, more in parts:
            self.put(seq, start, states[:width])
            states = states[width + more :]

    def cut(self, seq: int, length: int) -> None:
        """Forget the states of all tokens but the first ``length``."""
        stored = self._stored.get(seq)
        if stored is not None:
            stored.count = min(stored.count, max(0, length - stored.first))
            if stored.count == 0:
                del self._stored[seq]

    def select(self, seq: int, position: int, nodes: Sequence[int]) -> None:
        """Keep the rows with these numbers, counted from ``position`` on, in this order."""
        stored = self._stored.get(seq)
        if stored is not None and 0 <= position - stored.first < stored.count:
            at = position - stored.first
            chosen = stored.rows[at:][list(nodes)]
            stored.count = at
            stored.append(chosen, self._window)

    def span(self, seq: int) -> tuple[int, int]:
        """Positions [first, end) whose states are at hand; (0, 0) if none are."""
        stored = self._stored.get(seq)
        return (0, 0) if stored is None else (stored.first, stored.first + stored.count)

    def rows(self, seq: int, first: int, end: int) -> States:
        """(end - first, width) view of the states of the tokens at [first, end), all at hand."""
        stored = self._stored[seq]
        return stored.rows[first - stored.first : end - stored.first]
