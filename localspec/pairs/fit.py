"""Whether a model fits into this machine's memory."""

from __future__ import annotations

from pathlib import Path

import psutil

from localspec.errors import OutOfMemoryError
from localspec.llama.devices import backend
from localspec.llama.model import Model

_BYTES_PER_VALUE = 2
"""Of an f16 cache, the largest that is usual."""


def require_memory(path: Path) -> None:
    """Refuse weights larger than all of the memory there is.

    Raises:
        OutOfMemoryError: with both numbers.
    """
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
    if backend() != "cpu":
        return
    needed = _BYTES_PER_VALUE * 2 * n_ctx * model.n_layer * model.n_embd_kv
    available = psutil.virtual_memory().available
    if needed > available:
        raise OutOfMemoryError(
            f"a context of {n_ctx} tokens needs about {needed / 1e9:.1f} GB for its KV cache, and "
            f"{available / 1e9:.1f} GB of memory are free; use a smaller --ctx"
        )
