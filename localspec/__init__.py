"""localspec: exact speculative decoding for quantized models on your own machine.

The names below are the public API; loading llama.cpp is put off until `Runtime` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.errors import LocalspecError
from localspec.events import Finished, Loading, Message, Notice, Reading, Reply, Round, Stats, Token
from localspec.sampling import GREEDY, Sampling
from localspec.values import Origin

if TYPE_CHECKING:
    from localspec.runtime import Options, Runtime

__version__ = "0.1.0"

__all__ = [
    "GREEDY",
    "Finished",
    "Loading",
    "LocalspecError",
    "Message",
    "Notice",
    "Options",
    "Origin",
    "Reading",
    "Reply",
    "Round",
    "Runtime",
    "Sampling",
    "Stats",
    "Token",
]


def __getattr__(name: str) -> object:
    if name in {"Options", "Runtime"}:
        import localspec.runtime as module  # noqa: PLC0415 - llama.cpp takes a while to load

        return getattr(module, name)
    raise AttributeError(f"module 'localspec' has no attribute {name!r}")
