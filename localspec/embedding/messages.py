"""What a process with an embedding model is asked, and answers: one JSON object a line."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from localspec import errors
from localspec.core.embedded import Embedded
from localspec.errors import EngineError, LocalspecError

MAX_LINE = 1 << 28
"""Bytes of a line."""


def encode(message: dict[str, Any]) -> bytes:
    """The line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def embedded(found: Embedded) -> dict[str, Any]:
    """The fields of an answer."""
    rows = np.ascontiguousarray(found.vectors, "<f4")
    return {
        "shape": list(rows.shape),
        "vectors": base64.b64encode(rows.tobytes()).decode(),
        "counts": list(found.counts),
    }


def read_embedded(message: dict[str, Any]) -> Embedded:
    """The answer that a message holds."""
    raw = np.frombuffer(base64.b64decode(message["vectors"]), "<f4")
    vectors = raw.reshape(message["shape"]).astype(np.float32)
    return Embedded(vectors, tuple(message["counts"]))


def failed(error: LocalspecError) -> dict[str, Any]:
    """The fields of an answer that is an error."""
    return {"error": type(error).__name__, "message": str(error)}


def read_failed(message: dict[str, Any]) -> LocalspecError:
    """The error that a message holds: of its class in `localspec.errors`."""
    kind = getattr(errors, str(message["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, LocalspecError)):
        kind = EngineError
    return kind(str(message["message"]))
