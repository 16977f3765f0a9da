"""Whole numbers of a JSON schema end: small models write digits until the reply is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = 16
"""Most digits of a whole number without bounds, as in llama.cpp; a double has fewer."""
_MOST = 10**DIGITS - 1
_LONGER = re.compile(rf"\d{{{DIGITS + 1}}}|\d[eE]\+?\d")
_MANY = 100
"""Whole numbers that are bounded: each has an automaton of its own, and there is a limit."""
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_ONES = ("items", "additionalProperties", "additionalItems")


def bounded(schemas: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The schemas of one grammar, with bounds on their whole numbers where they have none.

    A schema that itself has a longer number means it. That one stays as it is, and so do all where
    there are too many.
    """
    found: list[Mapping[str, Any]] = []
    added: list[None] = []
    for schema in schemas:
        means_it = _LONGER.search(json.dumps(schema)) is not None
        found.append(schema if means_it else _bounded(schema, added))
    return found if len(added) <= _MANY else list(schemas)


def _bounded(schema: Mapping[str, Any], added: list[None]) -> dict[str, Any]:
    """``added`` gets an entry for each whole number."""
    found = dict(schema)
    for key in _LISTS:
        if isinstance(found.get(key), list):
            found[key] = [_inside(one, added) for one in found[key]]
    for key in _MAPS:
        if isinstance(found.get(key), Mapping):
            found[key] = {name: _inside(one, added) for name, one in found[key].items()}
    for key in _ONES:
        if key in found:
            found[key] = _inside(found[key], added)
    if _is_whole(found.get("type")) and "multipleOf" not in found:
        added.append(None)
        if not {"minimum", "exclusiveMinimum"} & found.keys():
            found["minimum"] = -_MOST
        if not {"maximum", "exclusiveMaximum"} & found.keys():
            found["maximum"] = _MOST
    return found


def _is_whole(kind: Any) -> bool:
    return kind == "integer" or (
        isinstance(kind, list) and "integer" in kind and "number" not in kind
    )


def _inside(one: Any, added: list[None]) -> Any:
    if isinstance(one, Mapping):
        return _bounded(one, added)
    return [_inside(each, added) for each in one] if isinstance(one, list) else one
