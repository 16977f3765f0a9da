"""The names by which a model is known outside."""

from __future__ import annotations

import functools
import re
from pathlib import PurePath


def spelt(name: str) -> tuple[str, ...]:
    """What a name may mean, the likelier first: itself, and itself without the tag that Ollama
    gives to names without one.
    """
    return tuple(dict.fromkeys((name, untagged(name))))


def untagged(name: str) -> str:
    """A name without that tag."""
    return name.removesuffix(":latest")


_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+:")
"""The repository before a file in it."""


@functools.lru_cache(64)
def public_name(model: str) -> str:
    """The name that clients see: that of a file without its folder, by which it is found again."""
    if _ON_HUB.match(model):
        return model
    if model.endswith(".gguf") or PurePath(model).is_absolute():
        return PurePath(model).name.removesuffix(".gguf")
    return model
