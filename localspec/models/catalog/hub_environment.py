"""Environment variables of huggingface_hub, read in the same way."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def is_true(name: str) -> bool:
    """Whether a variable is set to a true value."""
    return os.environ.get(name, "").upper() in _TRUE


def is_offline() -> bool:
    """Whether the environment forbids connections."""
    return is_true("HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE")


def host_of(address: str) -> str:
    """Host of an address in lower case; empty if there is none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
