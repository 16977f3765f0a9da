"""What an answer may call: loops end, and results leave room in the context."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Protocol

MOST_ROUNDS = 12
"""Replies with calls in a row, before the user is asked whether to go on."""
_MOST_CALLS = 16
"""Calls of one reply that are run."""
_SAME = 3
"""Times that the same call is run in one answer."""
_SMALLEST_RESULT = 1000
_UNKNOWN_CONTEXT = 8192


class Call(Protocol):
    """A call as the model wrote it."""

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


def refusal(call: Call, number: int, earlier: Iterable[Call]) -> str:
    """Why a call is not run; "" where it may be. ``number`` counts the calls of its reply from 0,
    ``earlier`` are those of this answer before it.
    """
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


__all__ = ["MOST_ROUNDS", "refusal", "result_size"]
