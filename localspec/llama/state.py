"""A sequence's state as bytes: saved and restored."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import DecodeError
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.sequences import Span

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


_SPANS = b"pictures"
"""Ends a state with pictures whose rows share positions: before it stand their spans, and how many
there are."""


def state_size(context: Context, seq: int) -> int:
    """Bytes of `state`."""
    size = int(c_api.llama_state_seq_get_size(context.handle, context.stream(seq)))
    return size + len(_packed(context.spans[seq]))


def state(context: Context, seq: int) -> memoryview:
    """The sequence's part of the KV cache, to be restored into a context of the same kind."""
    size, stream = state_size(context, seq), context.stream(seq)
    buffer, spans = (ctypes.c_uint8 * size)(), _packed(context.spans[seq])
    with context.model.waiting():
        written = int(c_api.llama_state_seq_get_data(context.handle, buffer, size, stream))
    found = memoryview(buffer).cast("B")
    found[written : written + len(spans)] = spans
    return found[: written + len(spans)]


def _packed(spans: list[Span]) -> bytes:
    if not spans:
        return b""
    numbers = [number for span in spans for number in span]
    return struct.pack(f"<{len(numbers)}iI", *numbers, len(spans)) + _SPANS


def _unpacked(saved: bytearray | memoryview) -> tuple[int, list[Span]]:
    """The bytes of llama.cpp's own state, and the spans after it."""
    end = len(saved) - len(_SPANS)
    if end < 4 or bytes(saved[end:]) != _SPANS:
        return len(saved), []
    (count,) = struct.unpack("<I", saved[end - 4 : end])
    begin = end - 4 - 12 * count
    if begin < 0:
        return len(saved), []
    return begin, [Span(*numbers) for numbers in struct.iter_unpack("<3i", saved[begin : end - 4])]


def restore(context: Context, seq: int, saved: bytearray | memoryview) -> None:
    """Put a state back in place of what the sequence holds.

    Raises:
        DecodeError: it is damaged, or of another model or kind of context; the sequence is then
            empty.
    """
    context.truncate(seq, 0)
    size, spans = _unpacked(saved)
    buffer, stream = (ctypes.c_uint8 * len(saved)).from_buffer(saved), context.stream(seq)
    with context.model.waiting():
        read = c_api.llama_state_seq_set_data(context.handle, buffer, size, stream)
    context.spans[seq] = spans
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
    memory, place = c_api.llama_get_memory(handle), context.place(seq, before.length)
    if not read or not c_api.llama_memory_seq_rm(memory, stream, place, -1):
        context.truncate(seq, 0)
        raise DecodeError("this model's state cannot be taken back")
    context.forget_spans(seq, before.length)
    context.adopt(seq)
