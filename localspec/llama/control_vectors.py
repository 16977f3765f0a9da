"""Control vectors of a loaded model: a direction is added to the output of each layer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import Adapter
from localspec.core.errors import UsageError
from localspec.core.values import Extension, Logits
from localspec.llama.heads.tensors import mapped
from localspec.llama.library import c_api
from localspec.models.compat.adapters import DIRECTION
from localspec.models.gguf.model_file import ModelFile

_TOKENS = (0, 1, 2, 3)
_FLOATS = ctypes.POINTER(ctypes.c_float)


class Computes(Protocol):
    """A context that computes: `localspec.llama.context.Context`."""

    @property
    def handle(self) -> Any:
        """The llama_context."""
        ...

    def forward(self, work: Sequence[Extension]) -> list[Logits]:
        """Rows of logits after the tokens of each sequence."""
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Forget what follows the first ``length`` tokens."""
        ...


class ControlVectors:
    """The control vectors of one model, added up. A scale of 0 is as none."""

    def __init__(self, chosen: Sequence[Adapter] = ()) -> None:
        """Read them; they have to fit the model (`localspec.models.compat.adapters`).

        Raises:
            ModelNotFoundError, ModelFileError: a file is missing or cut short.
        """
        self.chosen = tuple(one for one in chosen if one.scale)
        self._sum: dict[int, NDArray[np.float32]] = {}
        """(width,) by layer."""
        files = [AdapterFile.read(one.path) for one in self.chosen]
        self._digests = [file.digest for file in files]
        for one, read in zip(self.chosen, files, strict=True):
            file = ModelFile(one.path)
            for name, weight in mapped(file, [t.name for t in file.header.tensors]).items():
                match = DIRECTION.fullmatch(name)
                assert match is not None  # or it does not fit
                layer, direction = int(match[1]), one.scale * weight.numbers()
                self._sum[layer] = (self._sum.get(layer, 0) + direction).astype(np.float32)
            read.require_unchanged()

    def use(self, context: Any) -> None:
        """Compute with them in a llama_context from its next pass on.

        Raises:
            UsageError: llama.cpp refuses them.
        """
        if not self._sum:
            return
        layers, width = max(self._sum), len(next(iter(self._sum.values())))
        data = np.zeros((layers, width), np.float32)  # from layer 1 on; layer 0 has none
        for layer, direction in self._sum.items():
            data[layer - 1] = direction
        pointer = data.ctypes.data_as(_FLOATS)
        if c_api.llama_set_adapter_cvec(context, pointer, data.size, width, 1, layers):
            raise UsageError("llama.cpp refuses these control vectors; leave them out")

    def __bool__(self) -> bool:
        return bool(self._sum)

    def facts(self) -> list[list[object]]:
        """What identifies them: a digest of each file, and its scale."""
        pairs = zip(self._digests, self.chosen, strict=True)
        return sorted([digest, one.scale] for digest, one in pairs)

    def require_effect(self, context: Computes, model: str) -> None:
        """Refuse those that the graph of ``model`` leaves out: llama.cpp does not say so.

        Raises:
            UsageError: passes with and without them have the same logits.
        """
        if not self:
            return
        steered = _row(context)
        c_api.llama_set_adapter_cvec(context.handle, None, 0, 0, 0, 0)
        bare = _row(context)
        self.use(context.handle)
        if np.array_equal(steered, bare):
            raise UsageError(
                f"control vectors change nothing in {model}: all zeros, or llama.cpp has none for "
                "it"
            )


def _row(context: Computes) -> Logits:
    """The logits after a few tokens."""
    (rows,) = context.forward([(0, _TOKENS, 1)])
    found: Logits = rows[0].copy()
    context.truncate(0, 0)
    return found
