"""JSON without spaces, and server-sent events: the lines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

EVENTS = "text/event-stream"
"""Their media type."""
DONE = b"data: [DONE]\n\n"
"""Ends OpenAI's streams."""
COMMENT = b": keep-alive\n\n"
"""Means nothing; it keeps proxies and clients from giving up."""


_HALVES = re.compile("[\ud800-\udfff]")


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


_MOST = 4096
"""Values that are written in one step, in which no other thread has its turn."""
_SLICE = 32
"""Items of an array that are written together where that are no more values."""


def dumps(value: Any) -> bytes:
    """JSON in UTF-8, without spaces; half characters that a model may emit become U+FFFD."""
    return _utf8(_ENCODER.encode(value))


def dumps_in_steps(value: Any) -> bytes:
    """The same bytes for a value of any size: other threads have their turn while they are made.
    A loop, which steps would keep from others for longer, makes them at once.
    """
    if _in_loop() or _left(value) >= 0:
        return dumps(value)
    return b"".join(map(_utf8, _steps(value)))


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _steps(value: Any) -> Iterator[str]:
    if _left(value) >= 0:
        yield _ENCODER.encode(value)
    elif isinstance(value, dict):
        between = "{"
        for name, inner in value.items():
            yield f"{between}{_ENCODER.encode(name)}:"
            yield from _steps(inner)
            between = ","
        yield "}"
    else:
        between = "["
        for at in range(0, len(value), _SLICE):
            part = value[at : at + _SLICE]
            if _left(part) >= 0:
                yield between + _ENCODER.encode(part)[1:-1]
                between = ","
                continue
            for inner in part:
                yield between
                yield from _steps(inner)
                between = ","
        yield "]"


def _left(value: Any, most: int = _MOST) -> int:
    """How many values more than those in ``value`` can be written in one step; negative: it has
    too many, and not all were counted.
    """
    if not isinstance(value, dict | list | tuple):
        return most
    most -= len(value)
    for inner in value.values() if isinstance(value, dict) else value:
        if most < 0:
            break
        most = _left(inner, most)
    return most


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text).encode()


def sse(value: Any, event: str | None = None) -> bytes:
    """One event with JSON data, named where ``event`` is given."""
    name = b"" if event is None else b"event: " + event.encode("ascii") + b"\n"
    return name + b"data: " + dumps_in_steps(value) + b"\n\n"


class Chunks:
    """Events of a stream whose JSON objects all begin with the same fields."""

    def __init__(self, head: dict[str, Any]) -> None:
        """``head`` has at least one field, the others come after it."""
        self._head = b"data: " + dumps(head)[:-1] + b","

    def sse(self, fields: dict[str, Any]) -> bytes:
        """One event with the common fields and these, of which there is at least one."""
        return self._head + dumps_in_steps(fields)[1:] + b"\n\n"
