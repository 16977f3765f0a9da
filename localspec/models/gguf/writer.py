"""Writes a GGUF file (version 3) whose tensors come in parts, so that none must fit into memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from localspec.models.gguf.ggml_types import tensor_bytes

_ALIGNMENT = 32
_UINT32, _FLOAT32, _STRING = 4, 6, 8


@dataclass(frozen=True, slots=True)
class Zeros:
    """A run of zero bytes, which becomes a hole in the file where the file system has holes."""

    n_bytes: int


@dataclass(frozen=True, slots=True)
class RawValue:
    """A metadata value as the bytes of a GGUF: its type, then the value."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to write."""

    name: str
    shape: tuple[int, ...]
    """Fastest dimension first."""
    ggml_type: int
    parts: Callable[[], Iterable[bytes | Zeros]] | None = None
    """Its bytes, in order; None: all of them are zeros."""

    @property
    def n_bytes(self) -> int:
        """Bytes of all parts."""
        size = tensor_bytes(self.ggml_type, self.shape)
        assert size is not None  # a known type
        return size


def total(tensors: Sequence[Tensor]) -> int:
    """Bytes of the data of tensors in a file, with padding."""
    return sum(_padded(tensor.n_bytes) for tensor in tensors)


def write_gguf(
    file: BinaryIO,
    metadata: Mapping[str, str | int | float | RawValue],
    tensors: Sequence[Tensor],
) -> None:
    """Write a GGUF to an open, empty file; numbers are stored as uint32 and float32.

    Raises:
        OSError: the file cannot be written.
    """
    header = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        header += _text(key)
        if isinstance(value, RawValue):
            header += value.data
        elif isinstance(value, str):
            header += struct.pack("<I", _STRING) + _text(value)
        elif isinstance(value, float):
            header += struct.pack("<If", _FLOAT32, value)
        else:
            header += struct.pack("<II", _UINT32, value)
    offset = 0
    for tensor in tensors:
        n = len(tensor.shape)
        header += _text(tensor.name) + struct.pack(f"<I{n}Q", n, *tensor.shape)
        header += struct.pack("<IQ", tensor.ggml_type, offset)
        offset += _padded(tensor.n_bytes)
    file.write(header.ljust(_padded(len(header)), b"\0"))
    for tensor in tensors:
        written = 0
        for part in (Zeros(tensor.n_bytes),) if tensor.parts is None else tensor.parts():
            if isinstance(part, Zeros):
                file.seek(part.n_bytes, os.SEEK_CUR)
                written += part.n_bytes
            else:
                file.write(part)
                written += len(part)
        assert written == tensor.n_bytes
        file.write(bytes(_padded(written) - written))
    file.truncate()  # a hole at the end counts too


def _padded(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
