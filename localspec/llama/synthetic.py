"""Small models of random weights, one for each kind of weights whose kernels are to be checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from localspec.kernels.formats import FORMATS
from localspec.llama.llama_shape import LlamaShape
from localspec.models.gguf.writer import Tensor, write_gguf

VOCABULARY = 512
_SHAPE = LlamaShape(width=256, hidden=512, layers=2, heads=4, kv_heads=2, vocabulary=VOCABULARY)
_F32 = 0
TYPES = ("Q4_0", "Q8_0", "Q4_K", "F16")
"""Formats whose models prove llama.cpp."""
OWN_TYPES = tuple(FORMATS)
"""Formats whose models prove our own kernels."""

Random = np.random.Generator


def write_model(path: Path, kind: str) -> None:
    """A model of the llama architecture whose matrices are all of one of the formats.

    The weights are the same at every call; there is no tokenizer.

    Raises:
        OSError: the file cannot be written.
    """
    rng = np.random.default_rng(FORMATS[kind].ggml_type)
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
    form = FORMATS[kind]
    data = form.random(outputs * inputs, size, rng)
    return _tensor(name, shape, form.ggml_type, data.tobytes())


def _tensor(name: str, shape: tuple[int, ...], ggml_type: int, data: bytes) -> Tensor:
    return Tensor(f"{name}.weight", shape, ggml_type, lambda: iter([data]))
