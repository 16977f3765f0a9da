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


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def dumps(value: Any) -> bytes:
    """JSON in UTF-8, without spaces; half characters that a model may emit become U+FFFD."""
    text = _ENCODER.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text).encode()


def sse(value: Any, event: str | None = None) -> bytes:
    """One event with JSON data, named where ``event`` is given."""
    name = b"" if event is None else b"event: " + event.encode("ascii") + b"\n"
    return name + b"data: " + dumps(value) + b"\n\n"


class Chunks:
    """Events of a stream whose JSON objects all begin with the same fields."""

    def __init__(self, head: dict[str, Any]) -> None:
        """``head`` has at least one field, the others come after it."""
        self._head = b"data: " + dumps(head)[:-1] + b","

    def sse(self, fields: dict[str, Any]) -> bytes:
        """One event with the common fields and these, of which there is at least one."""
        return self._head + dumps(fields)[1:] + b"\n\n"
