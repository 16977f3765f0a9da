"""Single tensors of a GGUF, as they lie in the file."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import ModelFileError, UnsupportedModelError
from localspec.kernels.formats import FORMATS
from localspec.models.gguf.ggml_types import type_name
from localspec.models.gguf.model_file import ModelFile

Matrix = NDArray[np.float32]
_AT_ONCE = 1 << 20
"""Weights that are expanded at once: in between they are float64."""
_BY_TYPE = {form.ggml_type: form for form in FORMATS.values()}


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
        """(outputs, inputs) or (outputs,) float32, for all types of `FORMATS`.

        Raises:
            UnsupportedModelError: another type.
        """
        form = _BY_TYPE.get(self.ggml_type)
        if form is None:
            raise UnsupportedModelError(
                f"{self.name} is {type_name(self.ggml_type)}, and this build lacks the calls of "
                "ggml that would compute with it"
            )
        found = np.empty(math.prod(self.shape), np.float32)
        for begin in range(0, len(found), _AT_ONCE):
            first, last = (n // form.block * form.n_bytes for n in (begin, begin + _AT_ONCE))
            found[begin : begin + _AT_ONCE] = form.numbers(np.asarray(self.data[first:last]))
        return found.reshape(self.shape[::-1])


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
