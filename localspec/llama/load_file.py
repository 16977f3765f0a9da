"""Opening a model's file with llama.cpp."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from localspec.core.errors import LocalspecError
from localspec.core.processes.activity import doing
from localspec.llama.library import c_api, libggml, load_backends
from localspec.llama.remote import RemoteDevices
from localspec.models.compat.heads import corrected_metadata
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import EXPERTS

_WEIGHTS = re.compile(r":\s+(\S+) model buffer size =")
_EXTRA = re.compile(r"AMX|CPU_(?!Mapped$)\w+")


class LoadProgress:
    """llama.cpp's callback while it loads a file; false stops it. No exception may leave it: that
    would be printed and lost, and loading would go on.
    """

    def __init__(
        self,
        on_progress: Callable[[float], None] | None,
        cancelled: Callable[[], bool] | None,
        remote: RemoteDevices | None,
    ) -> None:
        self._on_progress, self._cancelled, self._remote = on_progress, cancelled, remote
        self.stopped = False
        self.raised: BaseException | None = None
        """The exception of one of the caller's functions."""

    def __call__(self, fraction: float, _data: object) -> bool:
        """``fraction`` of the file is loaded; whether to go on."""
        if self._remote is not None:
            self._remote.watch.heard()
        try:
            if self._on_progress is not None:
                self._on_progress(fraction)
            self.stopped = self._cancelled is not None and self._cancelled()
        except BaseException as error:  # noqa: BLE001 - `Model` raises it
            self.stopped, self.raised = True, error
        return not self.stopped


def weight_buffers(lines: Iterable[str]) -> tuple[str, ...]:
    """Names of the buffers that hold a model's weights, by llama.cpp's log of loading it."""
    return tuple(sorted({found[1] for line in lines if (found := _WEIGHTS.search(line))}))


def is_extra(buffer: str) -> bool:
    """Whether weights in a buffer of that name were rearranged for the processor's own kernels."""
    return _EXTRA.fullmatch(buffer) is not None


def load(path: Path, params: Any) -> Any:
    """The llama_model pointer, or null; llama.cpp's log says why.

    Some architectures cannot be loaded where the header promises layers for multi-token prediction
    that a converter left out. They are loaded as if nothing had been promised.
    """
    load_backends()
    doing(f"loading {path}")
    found = c_api.llama_model_load_from_file(os.fsencode(path), params)
    if found:
        return found
    try:
        spared = corrected_metadata(ModelFile(path).header)
    except LocalspecError:  # llama.cpp has logged what is wrong with it
        return None
    if not spared:
        return None
    params.kv_overrides = _overrides(spared)
    return c_api.llama_model_load_from_file(os.fsencode(path), params)


def experts_on_host(layers: int) -> Any:
    """Overrides that leave the routed experts of the first ``layers`` layers on the host.

    The array must outlive the loading.
    """
    host = libggml.ggml_backend_cpu_buffer_type
    host.restype, host.argtypes = ctypes.c_void_p, []
    array = (_BufferOverride * (layers + 1))()  # one without a pattern is the end
    for i, entry in enumerate(array[:layers]):
        entry.pattern, entry.buffer_type = f"^blk\\.{i}{EXPERTS}".encode(), host()
    return array


class _BufferOverride(ctypes.Structure):
    """llama.h: struct llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _overrides(values: dict[str, int]) -> Any:
    """An array of them; llama.cpp takes one without a key for the end."""
    array = (c_api.llama_model_kv_override * (len(values) + 1))()
    for entry, (key, value) in zip(array, values.items(), strict=False):
        entry.tag, entry.key = c_api.LLAMA_KV_OVERRIDE_TYPE_INT, key.encode()
        entry.value.val_i64 = value
    return array
