"""Server-sent events: the lines, and JSON without spaces."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
"""Ends OpenAI's streams."""
COMMENT = b": keep-alive\n\n"
"""Means nothing; it keeps proxies and clients from giving up."""


def dumps(value: Any) -> bytes:
    """JSON in ASCII: escapes carry the half characters that a model may emit."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def sse(value: Any, event: str | None = None) -> bytes:
    """One event with JSON data, named where ``event`` is given."""
    name = b"" if event is None else b"event: " + event.encode("ascii") + b"\n"
    return name + b"data: " + dumps(value) + b"\n\n"


__all__ = ["COMMENT", "DONE", "dumps", "sse"]
