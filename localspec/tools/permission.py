"""Which tools may run without being asked for, and how often: nothing runs that was not allowed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Literal, Protocol

from localspec.tools.values import OfferedTool

Answer = Literal["once", "chat", "always", "no"]
"""What the user says when a tool is asked for the first time."""


def matches(pattern: str, tool: OfferedTool) -> bool:
    """Whether ``pattern`` names a tool: ``server/tool``, or ``server/*`` for all of a server."""
    return pattern == tool.place or (bool(tool.server) and pattern == f"{tool.server}/*")


class Permissions:
    """What one chat may run; the list ``allow_tools`` of the settings holds for all of them."""

    def __init__(self, always: set[str] | None = None) -> None:
        """``always`` is shared by all chats: names as `matches` takes them."""
        self._always = set() if always is None else always
        self._here: set[str] = set()

    def why(self, tool: OfferedTool) -> str:
        """What allows a tool; "" where it has to be asked for.

        What was allowed in this chat is the tool as it was then: a server that describes it
        otherwise later is asked for again.
        """
        if not tool.server:
            return "folder"  # the user opened the folder, and nothing else is read
        if any(matches(pattern, tool) for pattern in self._always):
            return "always"
        return "chat" if _digest(tool) in self._here else ""

    def take(self, tool: OfferedTool, answer: Answer) -> None:
        """Note what the user said; "once" and "no" leave nothing behind."""
        if answer == "always":
            self._always.add(tool.place)
        elif answer == "chat":
            self._here.add(_digest(tool))


def _digest(tool: OfferedTool) -> str:
    whole = json.dumps([tool.server, tool.tool, tool.description, tool.schema], sort_keys=True)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


MOST_ROUNDS = 12
"""Replies with calls in a row, before the user is asked whether to go on."""
_MOST_CALLS = 16
"""Calls of one reply that are run."""
_SAME = 3
"""Times that the same call is run in one answer."""
_SMALLEST_RESULT = 1000
_UNKNOWN_CONTEXT = 8192


class Call(Protocol):
    """A call as the model wrote it, and what became of it."""

    @property
    def state(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


def refusal(call: Call, number: int, earlier: Iterable[Call]) -> str:
    """Why a call is not run; "" where it may be. ``number`` counts the calls of its reply from 0,
    ``earlier`` are those of this answer before it.
    """
    if call.state != "waiting":
        return "this call was not finished"
    if number >= _MOST_CALLS:
        return f"only {_MOST_CALLS} calls of a reply are run"
    meant = _meaning(call)
    if sum(_meaning(other) == meant for other in earlier) >= _SAME:
        return f"this call was made {_SAME} times; its results are above"
    return ""


def result_size(context: int, calls: int) -> int:
    """Characters of each result, where so many calls are run at once: together about a quarter of
    the context. ``context`` is its size in tokens; 0 where it is not known.
    """
    return max(_SMALLEST_RESULT, (context or _UNKNOWN_CONTEXT) // max(1, calls))


def _meaning(call: Call) -> tuple[str, str]:
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments
