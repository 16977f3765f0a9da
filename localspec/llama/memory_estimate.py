"""Ask llama.cpp what a model would allocate, without allocating it."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import OutOfMemoryError
from localspec.core.processes.activity import doing
from localspec.llama import library
from localspec.llama.devices import backend
from localspec.llama.library import c_api
from localspec.llama.limits import KV_TYPES, ROLLBACK, STRICT_BATCH
from localspec.llama.load_file import check_file, devices_for, kept_on_host, load, load_error
from localspec.llama.remote import RemoteDevices
from localspec.models.gguf.sizes import OUTPUTS

_MIB = 1 << 20
_BUFFER = re.compile(r":\s+(\S+)\s+(model|compute) buffer size =\s+([\d.]+) MiB")
_CACHE = re.compile(r": size =\s+([\d.]+) MiB \(.*(?:cells|seqs)")


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes that llama.cpp reports to allocate."""

    kv: int
    """KV cache and recurrent states, all devices."""
    compute: dict[str, int]
    """Bytes by the name of the device's buffers: CPU, CUDA0, ..."""
    weights: dict[str, int]
    """Bytes of the weights, by the same names; zeros in a dry run."""


def read_buffers(lines: Iterable[str]) -> Buffers:
    """Sizes of buffers from lines of llama.cpp's log, of one model or several."""
    kv = 0
    compute: dict[str, int] = {}
    weights: dict[str, int] = {}
    for line in lines:
        if cache := _CACHE.search(line):
            kv += int(float(cache[1]) * _MIB)
        elif found := _BUFFER.search(line):
            into = weights if found[2] == "model" else compute
            into[found[1]] = into.get(found[1], 0) + int(float(found[3]) * _MIB)
    return Buffers(kv, compute, weights)


def dry_run(
    path: Path,
    *,
    gpu_layers: int,
    n_ctx: int,
    n_batch: int,
    kv_type: str,
    host_experts: int = 0,
    strict: bool = False,
    remote: RemoteDevices | None = None,
) -> Buffers:
    """Build the model's graphs without weights, cache or buffers; with ``strict``, those of a
    strict context; with ``remote``, for layers on workers.

    Takes milliseconds, and a fifth of a second of reading where the vocabulary is large.

    Raises:
        ModelNotFoundError, ModelFileError, UnsupportedModelError: as loading it would.
        OutOfMemoryError: llama.cpp makes no such context, or there is no room on any card.
    """
    check_file(path)
    library.start()
    params = c_api.llama_model_default_params()
    params.no_alloc = True
    params.load_mode = c_api.LLAMA_LOAD_MODE_NONE
    params.n_gpu_layers = gpu_layers
    overrides = kept_on_host(
        path,
        gpu_layers,
        host_experts,
        devices=backend() != "cpu" or remote is not None,
        extra_buffers=True,
    )
    params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    devices = devices_for(remote, offloads=gpu_layers != 0)
    params.devices = ctypes.cast(devices, ctypes.c_void_p)
    library.forget_errors()
    waits = contextlib.nullcontext() if remote is None else remote.watch.waiting()
    with library.listening() as lines, waits:
        model = load(path, params)
        if not model:
            raise load_error(path, library.errors())
        doing(f"making a context of {n_ctx} tokens for {path}")
        try:
            wanted = c_api.llama_context_default_params()
            wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = n_ctx, n_batch, n_batch
            wanted.type_k = wanted.type_v = KV_TYPES[kv_type]
            wanted.n_rs_seq = ROLLBACK
            wanted.n_outputs_max = min(n_batch, OUTPUTS)
            wanted.op_offload = gpu_layers > 0
            if strict:
                wanted.flash_attn_type = c_api.LLAMA_FLASH_ATTN_TYPE_DISABLED
                wanted.n_batch = wanted.n_ubatch = STRICT_BATCH
                wanted.n_outputs_max = OUTPUTS
            context = c_api.llama_init_from_model(model, wanted)
            if not context:
                reason = (library.errors() or ["no reason given"])[0]
                raise OutOfMemoryError(f"no context of {n_ctx} tokens for {path.name}: {reason}")
            c_api.llama_free(context)
        finally:
            c_api.llama_model_free(model)
    return read_buffers(lines)
