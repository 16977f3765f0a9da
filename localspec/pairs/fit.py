"""Whether a pair fits into this machine's memory, and how: layers, context, KV type, threads."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from localspec.errors import OutOfMemoryError
from localspec.pairs.memory import Memory, host_only, look

if TYPE_CHECKING:
    from localspec.llama.model import Model

_BYTES_PER_VALUE = 2
"""Of an f16 cache, the largest that is usual."""

FITS, PARTLY, CPU_ONLY, TOO_BIG = "fits on GPU", "partly on GPU", "CPU only", "too big"
_PARTLY_FROM = 0.15
"""Of the weights; less than that on a GPU is not worth its copies."""
_RUNTIME_BYTES = 400_000_000
"""KV cache and compute buffers of a model of billions of weights, at the usual context."""


def quick_verdict(target_bytes: int, draft_bytes: int = 0) -> str:
    """How a pair of such files would run here: one of the four words above.

    An estimate from file sizes alone, for lists; `plan` reads the files.
    """
    return verdict(_memory_now(), target_bytes, draft_bytes)


def verdict(memory: Memory, target_bytes: int, draft_bytes: int = 0) -> str:
    """The same for a given machine."""
    weights = target_bytes + draft_bytes
    needed = sum(n + n // 12 + min(n, _RUNTIME_BYTES) for n in (target_bytes, draft_bytes))
    if memory.gpu_usable >= needed:
        return FITS
    everywhere = memory.host_usable + (0 if memory.shared else memory.gpu_usable)
    if needed > everywhere:
        return TOO_BIG
    return PARTLY if memory.gpu_usable >= _PARTLY_FROM * weights + _RUNTIME_BYTES else CPU_ONLY


@functools.cache
def _memory_now() -> Memory:
    """One look a process: a list of many pairs should not ask the driver for each."""
    try:
        return look()
    except (ImportError, OSError, RuntimeError):
        # Lists work beside a library that does not load; `doctor` says what is wrong with it.
        return host_only()


def require_memory(path: Path) -> None:
    """Refuse weights larger than all of the memory there is.

    Raises:
        OutOfMemoryError: with both numbers.
    """
    from localspec.llama.devices import backend  # lists of models need no llama.cpp

    if not path.is_file() or backend() != "cpu":
        return  # what is missing is told better by loading, what a GPU lacks by llama.cpp
    size, total = path.stat().st_size, psutil.virtual_memory().total
    if size > total:
        raise OutOfMemoryError(
            f"{path.name} has {size / 1e9:.1f} GB, and this machine {total / 1e9:.1f} GB of "
            "memory in all; choose a smaller model or a smaller quantization"
        )


def require_kv_memory(model: Model, n_ctx: int) -> None:
    """Refuse a KV cache that cannot fit, before the system ends us for asking.

    Raises:
        OutOfMemoryError: with both numbers.
    """
    from localspec.llama.devices import backend

    if backend() != "cpu":
        return
    needed = _BYTES_PER_VALUE * 2 * n_ctx * model.n_layer * model.n_embd_kv
    available = psutil.virtual_memory().available
    if needed > available:
        raise OutOfMemoryError(
            f"a context of {n_ctx} tokens needs about {needed / 1e9:.1f} GB for its KV cache, and "
            f"{available / 1e9:.1f} GB of memory are free; use a smaller --ctx"
        )
