"""Small models of random weights, one for each kind of weights whose kernels are to be checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.llama.llama_shape import LlamaShape
from localspec.models.gguf.writer import Tensor, write_gguf

VOCABULARY = 512
_SHAPE = LlamaShape(width=256, hidden=512, layers=2, heads=4, kv_heads=2, vocabulary=VOCABULARY)
_F32, _F16, _Q4_0, _Q8_0, _Q4_K = 0, 1, 2, 8, 12
TYPES = {"Q4_0": _Q4_0, "Q8_0": _Q8_0, "Q4_K": _Q4_K, "F16": _F16}
"""Kinds of weights by name, as ggml types."""

Bytes = NDArray[np.uint8]
Random = np.random.Generator


def write_model(path: Path, kind: str) -> None:
    """A model of the llama architecture whose matrices are all of one of `TYPES`.

    The weights are the same at every call; there is no tokenizer.

    Raises:
        OSError: the file cannot be written.
    """
    rng = np.random.default_rng(TYPES[kind])
    tensors = [
        _vector(name, rng) if len(shape) == 1 else _matrix(name, shape, kind, rng)
        for name, shape in _SHAPE.tensors().items()
    ]
    with path.open("wb") as file:
        write_gguf(file, _SHAPE.metadata(), tensors)


def _vector(name: str, rng: Random) -> Tensor:
    values = rng.uniform(0.75, 1.25, _SHAPE.width).astype(np.float32)
    return _tensor(name, (_SHAPE.width,), _F32, values.tobytes())


def _matrix(name: str, shape: tuple[int, ...], kind: str, rng: Random) -> Tensor:
    """Weights around zero with a deviation of about 1 / sqrt(inputs)."""
    inputs, outputs = shape
    size = 1 / np.sqrt(inputs)
    data = _RANDOM[kind](outputs * inputs, size, rng)
    return _tensor(name, shape, TYPES[kind], data.tobytes())


def _tensor(name: str, shape: tuple[int, ...], ggml_type: int, data: bytes) -> Tensor:
    return Tensor(f"{name}.weight", shape, ggml_type, lambda: iter([data]))


def _f16(n: int, size: float, rng: Random) -> Bytes:
    return rng.normal(0, size, n).astype(np.float16).view(np.uint8)


def _scales(n: int, size: float, rng: Random) -> Bytes:
    """(n, 2) bytes: a float16 for each block, of either sign."""
    signs = rng.choice([-1.0, 1.0], (n, 1))
    return (signs * rng.uniform(0.5, 1.5, (n, 1)) * size).astype(np.float16).view(np.uint8)


def _q4_0(n: int, size: float, rng: Random) -> Bytes:
    blocks = n // 32
    nibbles = rng.integers(0, 256, (blocks, 16), np.uint8)
    return np.concatenate([_scales(blocks, size / 4.6, rng), nibbles], axis=1)


def _q8_0(n: int, size: float, rng: Random) -> Bytes:
    blocks = n // 32
    weights = rng.integers(-127, 128, (blocks, 32), np.int8).view(np.uint8)
    return np.concatenate([_scales(blocks, size / 73, rng), weights], axis=1)


def _q4_k(n: int, size: float, rng: Random) -> Bytes:
    """Each group's minimum is the middle of its range, so its weights lie around zero."""
    blocks = n // 256
    scale = np.full((blocks, 1), size / 4.6 / 40)
    factors = np.concatenate([scale, 7.5 * scale], axis=1).astype(np.float16).view(np.uint8)
    groups = rng.integers(16, 64, (blocks, 8), np.uint8)
    first, last = groups[:, :4], groups[:, 4:]
    with_high_bits = first | (last >> 4 << 6)
    packed = [with_high_bits, with_high_bits, (last & 15) | ((last & 15) << 4)]
    nibbles = rng.integers(0, 256, (blocks, 128), np.uint8)
    return np.concatenate([factors, *packed, nibbles], axis=1)


_RANDOM: dict[str, Callable[[int, float, Random], Bytes]] = {
    "Q4_0": _q4_0,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "F16": _f16,
}

__all__ = ["TYPES", "VOCABULARY", "write_model"]
