"""Shapes of JSON schemas, for the tables of `openapi_requests` and `openapi_components`."""

from __future__ import annotations

from typing import Any

from localspec.core.setting_spec import Kind, SettingSpec

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
NULL: Schema = {"type": "null"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
_NUMBERS = {Kind.NUMBER: "number", Kind.WHOLE: "integer"}


def whole(low: int, high: int | None = None, about: str = "") -> Schema:
    """A whole number between two limits."""
    found: Schema = {"type": "integer", "minimum": low}
    if high is not None:
        found["maximum"] = high
    return found | ({"description": about} if about else {})


def limit(low: int) -> Schema:
    """A largest number of tokens, or -1 for none."""
    return either(whole(low), {"type": "integer", "const": -1})


def array(items: Schema, least: int = 0, most: int = 0) -> Schema:
    """An array; ``most`` of 0 is any number."""
    found: Schema = {"type": "array", "items": items}
    found |= {"minItems": least} if least else {}
    return found | ({"maxItems": most} if most else {})


def choice(*values: str) -> Schema:
    """One of several texts."""
    return {"type": "string", "enum": list(values)}


def record(properties: Schema, *required: str) -> Schema:
    """An object. Unknown properties are allowed, and told of in the server's log; null counts as
    absent.
    """
    shapes = {
        name: shape if name in required else either(shape, NULL)
        for name, shape in properties.items()
    }
    found: Schema = {"type": "object", "properties": shapes}
    return found | ({"required": list(required)} if required else {})


def either(*schemas: Schema) -> Schema:
    """One of several shapes."""
    return {"anyOf": list(schemas)}


def ref(name: str) -> Schema:
    """A named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def setting(spec: SettingSpec[Any]) -> Schema:
    """A number within the limits of a setting."""
    found: Schema = {"type": _NUMBERS[spec.kind], "description": spec.help}
    if spec.low is not None:
        found["minimum"] = spec.low
    if spec.high is not None:
        found["maximum"] = spec.high
    return found


__all__ = [
    "ANY_OBJECT",
    "FLAG",
    "NAME",
    "NULL",
    "TEXT",
    "Schema",
    "array",
    "choice",
    "either",
    "limit",
    "record",
    "ref",
    "setting",
    "whole",
]
