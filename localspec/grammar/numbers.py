"""Whole numbers of a JSON schema end: small models write digits until the reply is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DIGITS = 16
"""Most digits of a whole number without bounds, as in llama.cpp; a double has fewer."""
_MOST = 10**DIGITS - 2
"""The largest double with so many digits: llguidance reads bounds as doubles, and the next double
has a digit more."""
_MANY = 100
"""Whole numbers that are bounded: each has an automaton of its own, and there is a limit."""
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keys with schemas by names; a name is no keyword."""
_NO_SCHEMAS = frozenset({"const", "enum", "default", "examples", "not"})
"""Keys with values, or with what a value must not be. Under any other there may be a schema that a
reference names."""


def bounded(schemas: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The schemas of one grammar, with bounds on their whole numbers where they have none.

    A schema that itself has a longer number means it. That one stays as it is, and so do all where
    there are too many.
    """
    added: list[None] = []
    found = [schema if _has_longer(schema) else _bounded(schema, added) for schema in schemas]
    return found if len(added) <= _MANY else list(schemas)


def _has_longer(schema: Mapping[str, Any]) -> bool:
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, int | float) and abs(one) > _MOST:
            return True
    return False


def _bounded(schema: Mapping[str, Any], added: list[None]) -> dict[str, Any]:
    """``added`` gets an entry for each whole number."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            found[key] = {name: _inside(one, added) for name, one in value.items()}
        else:
            found[key] = value if key in _NO_SCHEMAS else _inside(value, added)
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
