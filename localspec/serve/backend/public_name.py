"""The name by which a model is known outside."""

from __future__ import annotations

import functools
from pathlib import PurePath


@functools.lru_cache(64)
def public_name(model: str) -> str:
    """The name that clients see: that of a file without its folder."""
    if model.endswith(".gguf") or PurePath(model).is_absolute():
        return PurePath(model).name.removesuffix(".gguf")
    return model
