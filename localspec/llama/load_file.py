"""Opening a model's file with llama.cpp, and what is wrong with one that cannot be opened."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from localspec.core.errors import (
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from localspec.core.interrupt import Cancelled
from localspec.core.processes.activity import doing
from localspec.llama import library
from localspec.llama import own_kernels as own
from localspec.llama.devices import full_cards
from localspec.llama.library import c_api, ggml_function, load_backends
from localspec.llama.remote import RemoteDevices, local_handles
from localspec.models.compat.heads import corrected_metadata
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.shards import fingerprint, n_bytes
from localspec.models.gguf.sizes import EXPERTS

_WEIGHTS = re.compile(r":\s+(\S+) model buffer size =")
_EXTRA = re.compile(r"AMX|CPU_(?!Mapped$)\w+")

_GGUF = b"GGUF"
_MEMORY = re.compile(
    r"out of memory|(failed|unable|cannot) (to )?allocate|insufficient memory|bad_alloc|cudaMalloc",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"unknown model architecture: '([^']*)'")
_REASON = re.compile(r"error loading model(?: \w+)?: (.*)")
_CUT = re.compile(
    r"not within the file bounds|corrupted or incomplete|failed to read|unexpected", re.IGNORECASE
)


class LoadProgress:
    """llama.cpp's callback while it loads a file; false stops it. No exception may leave it: that
    would be printed and lost, and loading would go on.
    """

    def __init__(
        self,
        on_progress: Callable[[float], None] | None,
        cancelled: Cancelled | None,
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


def load(path: Path, params: Any, *, own_kernels: bool = True) -> Any:
    """The llama_model pointer, or null; llama.cpp's log says why. Without ``own_kernels``, no
    weights are packed for ours.

    Some architectures cannot be loaded where the header promises layers for multi-token prediction
    that a converter left out. They are loaded as if nothing had been promised.
    """
    load_backends()
    doing(f"loading {path}")
    with own.loading(own=own_kernels):
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


def devices_for(remote: RemoteDevices | None, *, offloads: bool, alone: bool = True) -> Any:
    """The devices that a model is loaded for: those of workers before this machine's own; none
    where it has no layers on any, so that nothing of a GPU is taken. None: llama.cpp's choice.
    A head, which is not ``alone``, may compute with weights of a target that are on one.

    The array must outlive the loading.

    Raises:
        OutOfMemoryError: there is no room on any card.
    """
    if remote is not None:
        return remote.array
    full = full_cards()
    own = local_handles(full) if full else ()
    if not offloads and (alone or (full and not own)):
        return (ctypes.c_void_p * 1)()
    if full and not own:
        raise OutOfMemoryError(
            "the GPU has no memory left; close other programs that use it, or compute on the "
            "processor with --gpu-layers 0"
        )
    return (ctypes.c_void_p * (len(own) + 1))(*own) if full else None


def kept_on_host(
    path: Path, gpu_layers: int, host_experts: int, *, devices: bool, extra_buffers: bool
) -> Any:
    """Overrides of where weights are: the routed experts of the first ``host_experts`` layers are
    on the host, and the matrices of latent attention in no buffer of AMX. llama.cpp puts them
    there, where it cannot multiply them with the permuted rows that it has for them, and aborts
    when it makes a context.

    ``gpu_layers`` is llama.cpp's number, for which there may be ``devices``. The array must outlive
    the loading.

    Raises:
        ModelFileError: the header cannot be read.
    """
    load_backends()
    host = ggml_function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
    found = [(f"^blk\\.{i}{EXPERTS}", host()) for i in range(host_experts)]
    if extra_buffers and "AMX_INT8 = 1" in library.system_info():
        layers = r"\d+"
        if devices and gpu_layers > 0:
            first = 1 + ModelFile(path).header.n_layer - gpu_layers
            layers = "|".join(map(str, range(first)))
        if layers:
            found.append((rf"^blk\.(?:{layers})\.attn_[kv]_b\.", _plain_memory()))
    array = (_BufferOverride * (len(found) + 1))()  # one without a pattern is the end
    for entry, (pattern, buffer_type) in zip(array, found, strict=False):
        entry.pattern, entry.buffer_type = pattern.encode(), buffer_type
    return array


@functools.cache
def _plain_memory() -> int:
    """A buffer type of the host whose weights are as in the file. For ggml's own one for the
    processor, llama.cpp takes an extra one where there is any.
    """
    pointer = ctypes.c_void_p
    make = ggml_function("ggml_backend_cpu_buffer_from_ptr", pointer, pointer, ctypes.c_size_t)
    memory = (ctypes.c_char * 128)()
    buffer = make(-(-ctypes.addressof(memory) // 64) * 64, 64)
    found = ggml_function("ggml_backend_buffer_get_type", pointer, pointer)(buffer)
    ggml_function("ggml_backend_buffer_free", None, pointer)(buffer)
    return int(found)


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


def check_file(path: Path) -> None:
    """Refuse what cannot be a GGUF before llama.cpp, which may abort on it, sees it.

    Raises:
        ModelNotFoundError: nothing there.
        ModelFileError: a directory, empty, unreadable, or not GGUF.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a directory; give a .gguf file in it")
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ModelFileError(f"{path} is a pipe or a device; give a .gguf file")
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"no model file at {path}; `localspec models` lists the downloaded models"
        ) from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from None
    if not head:
        raise ModelFileError(f"{path} is empty; fetch it again")
    if head[:4] != _GGUF:
        raise ModelFileError(
            f"{path} is not a GGUF file; localspec loads GGUF only (convert it with llama.cpp's "
            "convert_hf_to_gguf.py, or pull a GGUF repository)"
        )
    if len(head) < 8:
        raise ModelFileError(f"{path} ends in the middle of its header; fetch it again")


def digest(path: Path) -> str:
    """What names the content of a model's files in the books of what was measured and saved.

    Raises:
        ModelFileError: one of them cannot be read.
    """
    try:
        return fingerprint(path)
    except OSError as error:
        raise ModelFileError(f"cannot read {error.filename}: {error.strerror}") from None


def require_unchanged(path: Path, before: str) -> None:
    """Refuse what was loaded of files whose digest was ``before`` then: what is saved of it under
    the name of other weights would be believed of those.

    Raises:
        ModelFileError: they have another one now.
    """
    if digest(path) != before:
        raise ModelFileError(
            f"{path.name} changed while it was loaded, or since; load the model again"
        )


def load_error(path: Path, lines: list[str]) -> ModelFileError | OutOfMemoryError:
    """The error that the lines of llama.cpp's log mean."""
    text = "\n".join(lines)
    if _MEMORY.search(text):
        return OutOfMemoryError(
            f"{path.name} ({n_bytes(path) / 1e9:.2f} GB) does not fit into memory; choose a "
            "smaller model, or fewer layers on the GPU with --gpu-layers"
        )
    if unknown := _UNKNOWN.search(text):
        return UnsupportedModelError(
            f"{path.name} has the architecture {unknown[1]!r}, which this build of llama.cpp "
            f"(llama-cpp-python {library.version()}) does not know"
        )
    if _CUT.search(text):
        return ModelFileError(f"{path.name} is cut short or damaged; fetch it again")
    found = _REASON.findall(text)
    reason = found[0] if found else (lines[0] if lines else "llama.cpp gave no reason")
    return ModelFileError(f"llama.cpp cannot load {path.name}: {reason}")
