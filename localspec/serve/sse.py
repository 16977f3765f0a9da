"""Server-sent events: the lines, and JSON without spaces."""

from __future__ import annotations

import json
import re
from typing import Any

DONE = b"data: [DONE]\n\n"
"""Ends OpenAI's streams."""
COMMENT = b": keep-alive\n\n"
"""Means nothing; it keeps proxies and clients from giving up."""


_HALVES = re.compile("[\ud800-\udfff]")


def dumps(value: Any) -> bytes:
    """JSON in UTF-8, without spaces; half characters that a model may emit become U+FFFD."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text).encode()


def sse(value: Any, event: str | None = None) -> bytes:
    """One event with JSON data, named where ``event`` is given."""
    name = b"" if event is None else b"event: " + event.encode("ascii") + b"\n"
    return name + b"data: " + dumps(value) + b"\n\n"


__all__ = ["COMMENT", "DONE", "dumps", "sse"]
