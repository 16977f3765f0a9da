"""Reads safetensors files: eight bytes of length, a JSON header, and the numbers.

Files are not trusted: every length and offset is checked against the size of the file. PyTorch's
pickles can run code when they are read; they are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import ModelFileError, ModelNotFoundError

_LONGEST = 100_000_000
"""Bytes of a header; the limit of the format's own library."""
_PICKLES = (b"PK\x03\x04", b"\x80")
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """A tensor in a safetensors file."""

    name: str
    dtype: str
    """F32, F16 or BF16."""
    shape: tuple[int, ...]
    """Slowest dimension first."""
    data: NDArray[np.uint8]
    """The tensor's bytes, mapped from the file."""

    def rows(self, begin: int, end: int) -> NDArray[np.float32]:
        """(end - begin, ...) float32: a part of its first dimension."""
        stride = len(self.data) // self.shape[0]
        part = self.data[begin * stride : end * stride]
        shape = (end - begin, *self.shape[1:])
        if self.dtype == "BF16":
            wide = part.view("<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(shape)
        return part.view("<f4" if self.dtype == "F32" else "<f2").astype(np.float32).reshape(shape)


def read_safetensors(
    path: Path, wanted: Callable[[str], bool] = lambda _: True
) -> Mapping[str, SafeTensor]:
    """The tensors of a file by name, filtered by ``wanted``.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError: not a safetensors file, damaged, cut short, or of an unsupported type.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if start.startswith(_PICKLES):
                raise ModelFileError(
                    f"{path.name} is a PyTorch pickle, which could run code when it is read; "
                    "convert it to safetensors where you trust it, and give that file"
                )
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(_LONGEST, size - 8):
                raise ModelFileError(f"{path.name} is not a safetensors file")
            header = _parsed(file.read(length), path.name)
    except FileNotFoundError:
        raise ModelNotFoundError(f"no checkpoint at {path}") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from None
    content: Any = np.empty(0, np.uint8)
    if size > 8 + length:
        content = np.memmap(path, np.uint8, mode="r", offset=8 + length)
    return {
        name: _stored(path.name, name, entry, content)
        for name, entry in header.items()
        if name != "__metadata__" and wanted(name)
    }


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"{name} is not a safetensors file: its header is not JSON")
    return header


def _stored(file: str, name: str, entry: Any, content: NDArray[np.uint8]) -> SafeTensor:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole or not isinstance(dtype, str):
        raise ModelFileError(f"{file} is damaged: it does not say where {name!r} is")
    if dtype not in _BYTES:
        raise ModelFileError(f"{name} in {file} is {dtype}; {', '.join(_BYTES)} can be read")
    if not begin <= end <= len(content):
        raise ModelFileError(f"{file} is cut short: {name} lies past its end; fetch it again")
    if end - begin != math.prod(shape) * _BYTES[dtype] or end == begin:
        raise ModelFileError(f"{file} is damaged: the bytes of {name} do not match its shape")
    return SafeTensor(name, dtype, shape, content[begin:end])
