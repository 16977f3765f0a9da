"""A sequence's state as bytes: saved and restored."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from localspec.errors import DecodeError
from localspec.llama.context import Context
from localspec.llama.library import c_api

_PARTIAL = int(c_api.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
_ON_DEVICE = int(c_api.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The part of a sequence's state that truncation cannot bring back."""

    length: int
    """Tokens of the sequence."""
    state: Any
    """Writable buffer of bytes; on a device, only of what describes the state there."""
    flags: int = _PARTIAL
    """Flags of llama.cpp's calls for the state of a sequence."""


def state_size(context: Context, seq: int) -> int:
    """Bytes of `state`."""
    return int(c_api.llama_state_seq_get_size(context.handle, context.stream(seq)))


def state(context: Context, seq: int) -> memoryview:
    """The sequence's part of the KV cache, to be restored into a context of the same kind."""
    size, stream = state_size(context, seq), context.stream(seq)
    buffer = (ctypes.c_uint8 * size)()
    with context.model.waiting():
        written = int(c_api.llama_state_seq_get_data(context.handle, buffer, size, stream))
    return memoryview(buffer).cast("B")[:written]


def restore(context: Context, seq: int, saved: bytearray | memoryview) -> None:
    """Put a state back in place of what the sequence holds.

    Raises:
        DecodeError: it is damaged, or of another model or kind of context; the sequence is then
            empty.
    """
    context.truncate(seq, 0)
    buffer, stream = (ctypes.c_uint8 * len(saved)).from_buffer(saved), context.stream(seq)
    with context.model.waiting():
        read = c_api.llama_state_seq_set_data(context.handle, buffer, len(saved), stream)
    context.adopt(seq)
    if read == 0:
        context.truncate(seq, 0)
        raise DecodeError("this saved state is damaged or belongs to another model or setting")


def exchange(context: Context, a: int, b: int) -> int:
    """Copy what two sequences hold into each other's stream. Returns the bytes that were moved.

    Raises:
        DecodeError: llama.cpp refuses a state; its sequence is then empty.
    """
    held = {seq: state(context, seq) for seq in (a, b) if context.length(seq)}
    for seq in held:
        context.truncate(seq, 0)
    context.exchange(a, b)
    for seq, data in held.items():
        restore(context, seq, data)
    return sum(map(len, held.values()))


def snapshot(context: Context, seq: int) -> Snapshot:
    """The part of the sequence's state that truncation cannot bring back, to `revert` to after the
    next pass.

    It is valid until the next snapshot of the sequence: a state that a device has is copied there,
    not to the host, and llama.cpp stores one such copy for each sequence.
    """
    return _partial(context, seq, _PARTIAL | _ON_DEVICE if context.on_device else _PARTIAL)


def checkpoint_size(context: Context, seq: int) -> int:
    """Bytes of `checkpoint`."""
    return int(c_api.llama_state_seq_get_size_ext(context.handle, context.stream(seq), _PARTIAL))


def checkpoint(context: Context, seq: int) -> Snapshot:
    """A `snapshot` in the host's memory: valid for ever, and for every sequence that holds the
    same tokens.
    """
    return _partial(context, seq, _PARTIAL)


def _partial(context: Context, seq: int, flags: int) -> Snapshot:
    handle, stream = context.handle, context.stream(seq)
    size = int(c_api.llama_state_seq_get_size_ext(handle, stream, flags))
    buffer = (ctypes.c_uint8 * size)()
    c_api.llama_state_seq_get_data_ext(handle, buffer, size, stream, flags)
    return Snapshot(context.length(seq), buffer, flags)


def revert(context: Context, seq: int, before: Snapshot) -> None:
    """Forget all tokens that were appended since the snapshot.

    Raises:
        DecodeError: llama.cpp refuses it; the sequence is then empty.
    """
    handle, stream, size = context.handle, context.stream(seq), len(before.state)
    buffer = (ctypes.c_uint8 * size).from_buffer(before.state)
    read = c_api.llama_state_seq_set_data_ext(handle, buffer, size, stream, before.flags)
    memory = c_api.llama_get_memory(handle)
    if not read or not c_api.llama_memory_seq_rm(memory, stream, before.length, -1):
        context.truncate(seq, 0)
        raise DecodeError("this model's state cannot be taken back")
    context.adopt(seq)


__all__ = [
    "Snapshot",
    "checkpoint",
    "checkpoint_size",
    "exchange",
    "restore",
    "revert",
    "snapshot",
    "state",
    "state_size",
]
