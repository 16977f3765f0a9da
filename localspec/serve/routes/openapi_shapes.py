"""Shapes of JSON schemas, for the tables of `openapi_requests` and `openapi_components`."""

from __future__ import annotations

from typing import Any

from localspec.core.setting_spec import Kind, SettingSpec

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
_NUMBERS = {Kind.NUMBER: "number", Kind.WHOLE: "integer"}


def whole(low: int, high: int | None = None, about: str = "") -> Schema:
    """A whole number between two limits."""
    found: Schema = {"type": "integer", "minimum": low}
    if high is not None:
        found["maximum"] = high
    return found | ({"description": about} if about else {})


def array(items: Schema, least: int = 0) -> Schema:
    """An array."""
    return {"type": "array", "items": items} | ({"minItems": least} if least else {})


def choice(*values: str) -> Schema:
    """One of several texts."""
    return {"type": "string", "enum": list(values)}


def record(properties: Schema, *required: str) -> Schema:
    """An object. Unknown properties are allowed, and told of in the server's log."""
    found: Schema = {"type": "object", "properties": properties}
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
    "TEXT",
    "Schema",
    "array",
    "choice",
    "either",
    "record",
    "ref",
    "setting",
    "whole",
]
