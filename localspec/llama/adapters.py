"""LoRA adapters of a loaded model, and the contexts that they are used in.

llama.cpp adds B(Ax) to the product of each adapted matrix, so the weights stay as they are and may
be of any format, ours too (`localspec.kernels`); A and B are computed by llama.cpp's own kernels.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from localspec.core.adapter_list import Adapter
from localspec.errors import ModelFileError
from localspec.llama import library
from localspec.llama.library import c_api
from localspec.models.gguf.fingerprint import fingerprint


class Adapters:
    """The adapters of one model, freed with it. A scale of 0 is as none."""

    def __init__(self, chosen: Sequence[Adapter] = ()) -> None:
        """They are read by `load`."""
        self.chosen = tuple(adapter for adapter in chosen if adapter.scale)
        self._pointers: list[Any] = []

    def load(self, model: Any) -> None:
        """Read them for a llama_model; they have to fit it (`localspec.models.compat.lora`).

        Raises:
            ModelFileError: llama.cpp refuses one.
        """
        for adapter in self.chosen:
            library.errors_since(0)
            with library.listening(alone=False):
                pointer = c_api.llama_adapter_lora_init(model, os.fsencode(adapter.path))
            if not pointer:
                reason = (library.errors_since() or ["no reason given"])[-1]
                raise ModelFileError(f"llama.cpp cannot load {adapter.path.name}: {reason}")
            self._pointers.append(pointer)

    def use(self, context: Any) -> None:
        """Compute with them in a llama_context from its next pass on."""
        n = len(self._pointers)
        if n:
            pointers = (c_api.llama_adapter_lora_p_ctypes * n)(*self._pointers)
            scales = (ctypes.c_float * n)(*(adapter.scale for adapter in self.chosen))
            c_api.llama_set_adapters_lora(context, pointers, n, scales)

    def facts(self) -> list[list[object]]:
        """What identifies them: a digest of each file, and its scale."""
        return [[fingerprint(adapter.path), adapter.scale] for adapter in self.chosen]


NO_ADAPTERS = Adapters()
