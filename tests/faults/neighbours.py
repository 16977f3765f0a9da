"""Bodies of requests that differ from a valid one in a few places."""

from __future__ import annotations

import copy
import random
from typing import Any

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    0.5,
    1e308,
    -1e-308,
    1 << 31,
    1 << 64,
    -(1 << 63),
    10**400,
    "",
    " ",
    "\x00",
    "auto",
    "none",
    "required",
    "text",
    "json_object",
    "regex",
    "<tool_call>",
    "<|im_end|>",
    "🙂é\u200f",
    "x" * 3000,
    '{"a": 1}',
    "{",
    [],
    [None],
    [[]],
    [0],
    ["a", "a"],
    {},
    {"": {}},
    {"type": "object"},
    {"type": ["string", "null"]},
    {"$ref": "#"},
    {"pattern": "(?=x)"},
    {"enum": []},
    {"not": {}},
)
_NAMES = (
    *("stream", "n", "grammar", "guided_regex", "guided_choice", "guided_json", "json_schema"),
    *("structured_outputs", "response_format", "tool_choice", "tools", "stop", "prompt_logprobs"),
    *("logprobs", "logprobs_mode", "prediction", "cache_salt", "type", "content", "strict"),
    *("reasoning_format", "return_progress", "max_tokens", "seed", "name", "text", "function"),
)
_DEPTH = 400
_OUTER = 150


def neighbour(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A body with one to three places changed, left out or added."""
    found = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change(found, body, chance)
    return found


def _change(found: dict[str, Any], body: dict[str, Any], chance: random.Random) -> None:
    # Of a value that is nested already, the outermost: twice as deep, it could not be sent.
    inside: dict[str, Any] | list[Any] = chance.choice(_containers(found)[:_OUTER])
    if isinstance(inside, dict):
        names = [*inside, *([chance.choice(_NAMES)] if chance.random() < 0.3 else [])]
        key: Any = chance.choice(names or [chance.choice(_NAMES)])
        if key in inside and chance.random() < 0.2:
            del inside[key]
            return
        inside[key] = _value(body, chance)
    elif inside and chance.random() < 0.7:
        inside[chance.randrange(len(inside))] = _value(body, chance)
    else:
        inside.append(_value(body, chance))


def _value(body: dict[str, Any], chance: random.Random) -> Any:
    kind = chance.random()
    if kind < 0.02:
        deep: Any = 0
        for _ in range(_DEPTH):
            deep = [deep] if chance.random() < 0.5 else {"properties": {"a": deep}}
        return deep
    if kind < 0.25:
        return copy.deepcopy(chance.choice(_containers(body)))
    return copy.deepcopy(chance.choice(_VALUES))


def _containers(value: Any) -> list[Any]:
    """All objects and arrays in a value, itself included."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            found.append(one)
            waiting += one.values() if isinstance(one, dict) else one
    return found
