"""Single tensors of a GGUF, as they lie in the file."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import ModelFileError, UnsupportedModelError
from localspec.models.gguf.ggml_types import type_name
from localspec.models.gguf.model_file import ModelFile

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix or a vector."""

    name: str
    shape: tuple[int, ...]
    """Fastest dimension first: (inputs, outputs) of a matrix."""
    ggml_type: int
    data: NDArray[np.uint8]
    """Its bytes, mapped from the file."""

    def numbers(self) -> Matrix:
        """(outputs, inputs) or (outputs,) float32.

        Raises:
            UnsupportedModelError: a type that is not read here.
        """
        convert = _CONVERT.get(self.ggml_type)
        if convert is None:
            raise UnsupportedModelError(
                f"{self.name} is {type_name(self.ggml_type)}, and this build lacks the calls of "
                "ggml that would compute with it"
            )
        return convert(self.data).reshape(self.shape[::-1])


def mapped(file: ModelFile, names: Collection[str]) -> dict[str, Weight]:
    """The tensors called ``names``, as far as a file of the model has them.

    Raises:
        ModelNotFoundError, ModelFileError: a file is not there, damaged or cut short.
    """
    found: dict[str, Weight] = {}
    for part, header in zip(file.paths, file.headers, strict=True):
        if header.size < header.end:
            raise ModelFileError(
                f"{part.name} is cut short: {header.size} of {header.end} bytes; get it again"
            )
        wanted = [tensor for tensor in header.tensors if tensor.name in names]
        if not wanted:
            continue
        content: Any = np.memmap(part, np.uint8, mode="r")
        for tensor in wanted:
            start = header.data_offset + tensor.offset
            data = content[start : start + tensor.n_bytes]
            found[tensor.name] = Weight(tensor.name, tensor.shape, tensor.ggml_type, data)
    return found


def _q8_0(data: NDArray[np.uint8]) -> Matrix:
    blocks = data.reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scales


def _bf16(data: NDArray[np.uint8]) -> Matrix:
    return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


_CONVERT: dict[int, Callable[[NDArray[np.uint8]], Matrix]] = {
    0: lambda data: np.array(data.view(np.float32)),
    1: lambda data: data.view(np.float16).astype(np.float32),
    8: _q8_0,
    30: _bf16,
}
