"""Devices that this build of llama.cpp can compute on."""

from __future__ import annotations

import ctypes
import functools
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec.core.processes import cgroups, host
from localspec.core.units import CUDA_KERNELS
from localspec.llama import library
from localspec.llama.heads import ggml as bindings
from localspec.llama.library import c_api, ggml_function

_NVIDIA = Path("/sys/module/nvidia/version")
_OFFLOADING = ("cuda", "metal", "vulkan", "rocm", "sycl")
_TYPES = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accelerator"}


@dataclass(frozen=True, slots=True)
class Device:
    """One backend device of llama.cpp."""

    name: str
    description: str
    kind: str
    """cpu, gpu, igpu or accelerator."""
    free: int
    """Bytes; for the CPU what this process may use, not what llama.cpp says."""
    total: int
    """Bytes."""


def devices() -> list[Device]:
    """Every device, in llama.cpp's order."""
    library.start()
    count = ggml_function("ggml_backend_dev_count", ctypes.c_size_t)
    get = ggml_function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    name = ggml_function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    description = ggml_function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    kind = ggml_function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
    size_p = ctypes.POINTER(ctypes.c_size_t)
    memory = ggml_function("ggml_backend_dev_memory", None, ctypes.c_void_p, size_p, size_p)
    found = []
    for i in range(count()):
        device = get(i)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(device, ctypes.byref(free), ctypes.byref(total))
        device_kind = _TYPES.get(kind(device), "accelerator")
        # Vulkan subtracts without a sign: a device that is more than full reports exabytes.
        available, whole = free.value if free.value <= total.value else 0, total.value
        if device_kind == "cpu":
            own = host.memory()
            available, whole = own.available, own.total
        found.append(
            Device(
                (name(device) or b"?").decode("utf-8", "replace"),
                (description(device) or b"").decode("utf-8", "replace"),
                device_kind,
                available,
                whole,
            )
        )
    return found


def free_accelerators() -> list[Device]:
    """The devices that layers are placed on, with what is free on them now: GPUs; integrated ones
    only where there is no other.
    """
    found = [d for d in devices() if d.kind in {"gpu", "igpu"}]
    return [d for d in found if d.kind == "gpu"] or found


def full_cards() -> frozenset[str]:
    """Names of the cards of which other programs have all memory: CUDA cannot begin there, so
    llama.cpp knows no size of theirs, and aborts where anything is placed on one.
    """
    if backend() not in {"cuda", "rocm"}:
        return frozenset()
    return frozenset(d.name for d in free_accelerators() if d.kind == "gpu" and d.total == 0)


def cards_are_full() -> bool:
    """Whether no card has room for a first pass, in which CUDA loads its kernels."""
    if backend() not in {"cuda", "rocm"}:
        return False
    cards = [d for d in free_accelerators() if d.kind == "gpu"]
    return bool(cards) and all(d.total == 0 or d.free < CUDA_KERNELS for d in cards)


accelerators = functools.cache(free_accelerators)
"""The devices of the first call, for what does not depend on free memory."""


@functools.cache
def has_matrix_library() -> bool:
    """Whether a library for matrix products (Accelerate, BLAS) takes wide ones from the processor's
    own kernels. It rounds otherwise.
    """
    return any(device.kind == "accelerator" for device in devices())


def computes_with(n_bytes: int) -> bool:
    """Whether the GPU computes with tensors of that size; some have a limit.

    llama.cpp aborts the process where one that it has placed there is larger.
    """
    ggml = bindings.calls()
    if ggml is None:
        return True
    for kind in (bindings.GPU, bindings.INTEGRATED_GPU):
        device = ggml.backend_dev_by_type(kind)
        if device:
            room = ggml.init(bindings.InitParams(ggml.tensor_overhead(), None, True))
            tensor = ggml.new_tensor_1d(room, bindings.F32, -(-n_bytes // 4))
            taken = bool(ggml.backend_dev_supports_op(device, tensor))
            ggml.free(room)
            return taken
    return True


@functools.cache
def backend() -> str:
    """The back end that the build offloads to: cuda, metal, vulkan, another's name, or cpu.

    Asked once: every pass needs it, and CUDA takes a third of a millisecond to list its devices.
    """
    library.start()
    if not c_api.llama_supports_gpu_offload():
        return "cpu"
    for device in devices():
        if device.kind in {"gpu", "igpu"}:
            lower = device.name.lower()
            for known in _OFFLOADING:
                if known in lower:
                    return known
            return "metal" if lower.startswith("mtl") else lower
    return "cpu"


def silent() -> list[str]:
    """The device back ends of this build that found no device, as CUDA does without a driver."""
    library.start()
    get = ggml_function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = ggml_function("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    count = ggml_function("ggml_backend_reg_dev_count", ctypes.c_size_t, ctypes.c_void_p)
    found = []
    for i in range(ggml_function("ggml_backend_reg_count", ctypes.c_size_t)()):
        registered = get(i)
        known = (name(registered) or b"").decode("utf-8", "replace").lower()
        if known in _OFFLOADING and not count(registered):
            found.append(known)
    return found


def driver() -> str:
    """The version of what llama.cpp reaches a GPU by: a driver, or on macOS the system itself.

    "" where the system does not say: on Windows, and of drivers that are a part of the system.
    """
    if platform.system() == "Darwin":
        return platform.mac_ver()[0]
    try:
        return _NVIDIA.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def physical_cores() -> int:
    """Physical cores that this process may run on, within a container's share of their time; at
    least 1.
    """
    cores = min(psutil.cpu_count(logical=False) or host.processors(), host.processors())
    share = cgroups.processors()
    if share is not None:
        # Threads beyond it would all stop for the rest of each period, in the middle of a pass.
        cores = min(cores, int(share))
    return max(1, cores)
