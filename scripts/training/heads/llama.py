"""Heads run by llama.cpp itself, row by row as `heads.models` counts them.

The calls are those of llama.cpp's own drafting loops; they are not part of its stable interface.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp_ext as ext
from numpy.typing import NDArray

from heads.frozen import LAYERS

Array = NDArray[np.float32]
_MTP = 1
"""LLAMA_CONTEXT_TYPE_MTP."""
_library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - these two functions have no other way in
_set_layer_input = _library["_Z30llama_set_embeddings_layer_inpP13llama_contextjb"]
_set_layer_input.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
_set_layer_input.restype = None
_layer_input = _library["_Z30llama_get_embeddings_layer_inpP13llama_contextj"]
_layer_input.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
_layer_input.restype = ctypes.POINTER(ctypes.c_float)


@llama_cpp.llama_log_callback
def _quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


class Context:
    """A model with one sequence; every row of a call gives logits."""

    def __init__(
        self, path: Path, size: int, *, of: Context | None = None, mtp: bool = False
    ) -> None:
        """`of` is the target's context; with `mtp` and `of` this is the block of the same model."""
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        if mtp and of is not None:
            self.model = of.model
        else:
            params = llama_cpp.llama_model_default_params()
            params.n_gpu_layers, params.load_mtp = 0, mtp
            self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
            if not self.model:
                raise RuntimeError(f"cannot load {path}")
        cp = llama_cpp.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = size
        cp.n_threads = cp.n_threads_batch = 1
        cp.flash_attn_type = 0
        cp.type_k = cp.type_v = llama_cpp.GGML_TYPE_F32
        if of is not None:
            cp.ctx_other = of.ctx
            cp.ctx_type = _MTP if mtp else 0
        self.ctx = llama_cpp.llama_init_from_model(self.model, cp)
        if not self.ctx:
            raise RuntimeError(f"no context for {path}")
        self.width = llama_cpp.llama_model_n_embd(self.model)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def decode(self, at: int, tokens: list[int], states: Array | None = None) -> Array:
        """Logits (N, V) of tokens at positions from `at` on, with the states that go with them."""
        batch, _owners = _batch(at, tokens, states)
        if code := llama_cpp.llama_decode(self.ctx, batch):
            raise RuntimeError(f"llama_decode failed with {code}")
        return _rows(llama_cpp.llama_get_logits(self.ctx), len(tokens), self.vocab)

    def encode(self, features: Array) -> Array:
        """Fused states (N, E) of target features (N, 3 E)."""
        batch, _owners = _batch(0, None, features)
        if code := llama_cpp.llama_encode(self.ctx, batch):
            raise RuntimeError(f"llama_encode failed with {code}")
        return self.states(len(features))

    def states(self, count: int) -> Array:
        """The states that the last call gives on, (N, E)."""
        return _rows(ext.llama_get_embeddings_nextn(self.ctx), count, self.width)

    def inputs(self, count: int) -> Array:
        """Inputs of the fused layers in the last call, side by side, (N, 3 E)."""
        return np.concatenate(
            [_rows(_layer_input(self.ctx, i), count, self.width) for i in LAYERS], axis=1
        )

    def keep(self, count: int) -> None:
        """Remove all positions from `count` on from the KV cache."""
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self.ctx), 0, count, -1)


@dataclass(frozen=True)
class Drafted:
    """llama.cpp's results for a text of N tokens."""

    features: Array | None
    """(N, 3 E), for EAGLE-3."""
    hidden: Array | None
    """(N, E) behind the target's final norm."""
    rows: list[tuple[int, int, Array]]
    """(step, row, logits) of every draft."""


def run_eagle3(target: Path, head: Path, ids: list[int], starts: list[int], steps: int) -> Drafted:
    """Drafts of the first position everywhere, of later positions after each of `starts`."""
    trunk = Context(target, len(ids) + 8)
    for layer in LAYERS:
        _set_layer_input(trunk.ctx, layer, True)
    trunk.decode(0, ids)
    features = trunk.inputs(len(ids))
    draft = Context(head, len(ids) + 8, of=trunk)
    ext.llama_set_embeddings_nextn(draft.ctx, True, True)
    states = draft.encode(features)
    # Position p holds token p + 1 and the state at p.
    logits = draft.decode(0, ids[1:], states[:-1])
    rows = [(1, p + 1, row) for p, row in enumerate(logits)]
    for start in starts:
        draft.keep(start)
        state = states[start : start + 1]
        for step in range(1, steps + 1):
            at = start + step - 1
            row = draft.decode(at, ids[at + 1 : at + 2], state)[0]
            state = draft.states(1)
            rows.append((step, at + 1, row))
        draft.keep(start)
        draft.decode(start, ids[start + 1 :], states[start:-1])
    return Drafted(features, None, rows)


def run_mtp(composed: Path, ids: list[int], starts: list[int], steps: int) -> Drafted:
    """Drafts of the block of a composed file, as `run_eagle3`."""
    trunk = Context(composed, len(ids) + 8, mtp=True)
    ext.llama_set_embeddings_nextn(trunk.ctx, True, False)
    trunk.decode(0, ids)
    hidden = trunk.states(len(ids))
    draft = Context(composed, len(ids) + 8, of=trunk, mtp=True)
    ext.llama_set_embeddings_nextn(draft.ctx, True, True)
    # Position k holds token k and the state before it; nothing stands before the first one.
    states = np.concatenate((np.zeros_like(hidden[:1]), hidden[:-1]))
    logits = draft.decode(0, ids, states)
    rows = [(1, k, row) for k, row in enumerate(logits)]
    for start in starts:
        draft.keep(start)
        state = states[start : start + 1]
        for step in range(1, steps + 1):
            at = start + step - 1
            row = draft.decode(at, ids[at : at + 1], state)[0]
            state = draft.states(1)
            rows.append((step, at, row))
        draft.keep(start)
        draft.decode(start, ids[start:], states[start:])
    return Drafted(None, hidden, rows)


def run_plain(target: Path, ids: list[int]) -> tuple[Array, Array]:
    """Logits (N, V) and the states they are made of (N, E)."""
    trunk = Context(target, len(ids) + 8)
    llama_cpp.llama_set_embeddings(trunk.ctx, True)
    logits = trunk.decode(0, ids)
    hidden = _rows(llama_cpp.llama_get_embeddings(trunk.ctx), len(ids), trunk.width)
    return logits, hidden


def _rows(pointer: Any, count: int, width: int) -> Array:
    return np.ctypeslib.as_array(pointer, shape=(count, width)).copy()


def _batch(at: int, tokens: list[int] | None, states: Array | None) -> tuple[Any, list[Any]]:
    """A batch, and the arrays that it points into."""
    count = len(tokens) if tokens is not None else len(states if states is not None else ())
    word = llama_cpp.llama_token
    ids = None if tokens is None else (word * count)(*tokens)
    floats = None if states is None else np.ascontiguousarray(states, np.float32)
    pos = (llama_cpp.llama_pos * count)(*range(at, at + count))
    counts = (ctypes.c_int32 * count)(*[1] * count)
    zero = (llama_cpp.llama_seq_id * 1)(0)
    pointer = ctypes.POINTER(llama_cpp.llama_seq_id)
    seqs = (pointer * count)(*[ctypes.cast(zero, pointer)] * count)
    wanted = (ctypes.c_int8 * count)(*[1] * count)
    batch = llama_cpp.llama_batch()
    batch.n_tokens = count
    if ids is not None:
        batch.token = ids
    if floats is not None:
        batch.embd = floats.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    batch.pos, batch.n_seq_id, batch.seq_id, batch.logits = pos, counts, seqs, wanted
    return batch, [ids, floats, pos, counts, zero, seqs, wanted]
