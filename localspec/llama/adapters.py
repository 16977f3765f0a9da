"""LoRA adapters of a loaded model, and the contexts that they are used in.

llama.cpp adds B(Ax) to the product of each adapted matrix, so the weights stay as they are and may
be of any format, ours too (`localspec.kernels`); A and B are computed by llama.cpp's own kernels.
A context has one blend of adapters at a time; another one makes llama.cpp build its graphs anew,
which takes about as long as a pass of a small model.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from localspec.core.adapter_file import AdapterFile, digest_of
from localspec.core.adapter_list import AS_LOADED, MOST, Adapter, AdapterUse, Blend
from localspec.core.errors import ModelFileError, UsageError
from localspec.llama import library
from localspec.llama.library import c_api


class Adapters:
    """The adapters of one model, freed with it. A scale of 0 is as none.

    Files of equal content are one adapter. One whose last name was taken away has no use for new
    blends and stays in memory until it is freed. Those of the usual blend have names that stay, so
    what every context begins with is never freed.
    """

    def __init__(self, chosen: Sequence[Adapter] = ()) -> None:
        """They are read by `load`."""
        self.chosen = tuple(chosen)
        self._digests: dict[str, str] = {}
        """The digests of their files, by name. Other threads look names up while the one that
        computes changes it.
        """
        self._pointers: dict[str, Any] = {}
        """The pointers of llama.cpp, by digest."""
        self._model: Any = None
        self.usual = AS_LOADED
        """What the model was loaded with."""

    def load(self, model: Any) -> None:
        """Read them for a llama_model; they have to fit it (`localspec.models.compat.adapters`).

        Raises:
            ModelFileError: llama.cpp refuses one.
            UsageError: two have the same content, or there are too many.
        """
        self._model = model
        for adapter in self.chosen:
            self.add(AdapterFile.read(adapter.path), str(adapter.path))
        uses = [AdapterUse(str(one.path), one.scale) for one in self.chosen]
        self.usual = Blend(self._parts(uses))

    def add(self, file: AdapterFile, name: str) -> None:
        """Give a name to what a file contains, which llama.cpp reads unless it is known.

        Raises:
            ModelFileError: llama.cpp refuses it, or it has changed.
            UsageError: the model has as many as it may have, or was loaded with this one.
        """
        digest = file.digest
        known = self._digests.get(name)
        if known == digest:
            return
        if known is not None:
            self._require_apart(name)
        if digest not in self._pointers:
            if len(self._pointers) > MOST:  # one may be exchanged
                raise UsageError(
                    f"{len(self._pointers)} adapters are in memory, which is the most; unload one, "
                    "or try again when the replies have ended that use unloaded ones"
                )
            self._pointers[digest] = self._read(file)
        self._digests[name] = digest

    def _read(self, file: AdapterFile) -> Any:
        file.require_unchanged()  # what it is now, nobody has looked at
        library.forget_errors()
        with library.listening(alone=False):
            pointer = c_api.llama_adapter_lora_init(self._model, os.fsencode(file.path))
        if not pointer:
            reason = (library.errors() or ["no reason given"])[-1]
            raise ModelFileError(f"llama.cpp cannot load {file.path.name}: {reason}")
        try:
            file.require_unchanged()
        except ModelFileError:
            c_api.llama_adapter_lora_free(pointer)
            raise
        return pointer

    def remove(self, name: str) -> None:
        """Take a name away. One that is not loaded is passed over.

        Raises:
            UsageError: the model was loaded with it.
        """
        self._require_apart(name)
        self._digests.pop(name, None)

    def unnamed(self) -> set[str]:
        """The digests of those that have no name any more."""
        return self._pointers.keys() - {*self._digests.values()}

    def free(self, digests: Iterable[str]) -> None:
        """Free such adapters; no context may compute with one."""
        for digest in digests:
            c_api.llama_adapter_lora_free(self._pointers.pop(digest))

    def _require_apart(self, name: str) -> None:
        """Refuse what would take away an adapter that all contexts of the model begin with. Its
        file may be loaded by another name too, which takes nothing away when it goes.
        """
        if any(name == str(adapter.path) for adapter in self.chosen):
            raise UsageError(
                f"{Path(name).name} was loaded with the model and stays; start without --lora for "
                "it"
            )

    def blend(self, uses: Iterable[AdapterUse] | None) -> Blend:
        """The blend that a request asks for; None: the usual one.

        Raises:
            UsageError: one is not loaded, or named twice.
        """
        if uses is None:
            return self.usual
        parts = self._parts(uses)
        if parts == self.usual.parts:
            return self.usual
        text = json.dumps(parts)
        return Blend(parts, hashlib.sha256(text.encode()).hexdigest()[:32])

    def _parts(self, uses: Iterable[AdapterUse]) -> tuple[tuple[str, float], ...]:
        found: dict[str, float] = {}
        for use in uses:
            digest, name = self._digests.get(use.path), Path(use.path).name[:80]
            if digest is None:
                raise UsageError(f"the adapter {name} is not loaded")
            if digest in found:
                raise UsageError(f"the adapter {name} is named twice, or a copy of it is named too")
            found[digest] = use.scale
        return tuple(sorted((digest, scale) for digest, scale in found.items() if scale))

    def require(self, blend: Blend) -> None:
        """Refuse a blend whose adapters are not all loaded any more.

        Raises:
            UsageError: they are not.
        """
        if not blend.digests <= self._pointers.keys():
            raise UsageError("an adapter of this request was unloaded meanwhile; send it again")

    def use(self, context: Any, blend: Blend | None = None) -> None:
        """Compute with a blend in a llama_context from its next pass on; None: the usual one."""
        parts = (self.usual if blend is None else blend).parts
        n, pointers = len(parts), [self._pointers[digest] for digest, _ in parts]
        array = (c_api.llama_adapter_lora_p_ctypes * n)(*pointers)
        scales = (ctypes.c_float * n)(*(scale for _, scale in parts))
        c_api.llama_set_adapters_lora(context, array, n, scales)

    def every(self) -> Blend:
        """All of them at once."""
        return Blend(tuple((digest, 1.0) for digest in sorted(self._pointers)), "every")

    def extremes(self) -> tuple[Blend, ...]:
        """None of them, and all; one blend, where there are none."""
        return (Blend(key="none"), self.every()) if self._pointers else (self.usual,)

    def facts(self) -> list[list[object]]:
        """What identifies the usual blend: a digest of each file, and its scale."""
        return [[digest, scale] for digest, scale in self.usual.parts]


def facts_of(chosen: Sequence[Adapter]) -> list[list[object]]:
    """What `Adapters.facts` will be of adapters that are not loaded yet."""
    return sorted([digest_of(one.path), one.scale] for one in chosen if one.scale)
