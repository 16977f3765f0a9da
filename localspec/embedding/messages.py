"""What a process with an embedding model is asked, and answers: one JSON object a line."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from localspec.core.embedded import Embedded

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
