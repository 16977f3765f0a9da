"""Frozen dataclasses to plain JSON values and back, checked strictly against their type hints.

Missing fields take their default; unknown fields, wrong types and NaN are refused with a line that
names the place. Infinities travel as the strings "inf" and "-inf", since JSON has no word for them,
and bytes as base64.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")

_NONFINITE = {"inf": math.inf, "-inf": -math.inf}


class CodecError(ValueError):
    """A value that does not have the promised shape."""


def encode(value: object) -> Any:
    """A JSON value for a dataclass, or for what a dataclass may hold."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise CodecError("NaN cannot be sent")
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise CodecError(f"{type(value).__name__} cannot be sent")


def decode(kind: type[T], data: object, where: str = "") -> T:
    """The value of type ``kind`` that ``data`` encodes."""
    value: T = _decode(kind, data, where or getattr(kind, "__name__", "value"))
    return value


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(kind: type[Any]) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


def _refuse(where: str, expected: str, data: object) -> CodecError:
    return CodecError(f"{where}: expected {expected}, got {type(data).__name__}")


def _decode(kind: Any, data: object, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Union or origin is types.UnionType:
        return _union(typing.get_args(kind), data, where)
    if origin is Literal:
        choices = typing.get_args(kind)
        if isinstance(data, str) and data in choices:
            return data
        raise CodecError(f"{where}: expected one of {', '.join(map(str, choices))}")
    if origin is tuple:
        return _tuple(typing.get_args(kind), data, where)
    if origin in (dict, Mapping):
        if not isinstance(data, dict):
            raise _refuse(where, "an object", data)
        item = typing.get_args(kind)[1]
        return {key: _decode(item, value, f"{where}.{key}") for key, value in data.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast("type[Any]", kind), data, where)
    return _scalar(kind, data, where)


def _scalar(kind: Any, data: object, where: str) -> Any:
    if kind is Any:
        return data
    if kind is float:
        return _float(data, where)
    if kind is bytes and isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError:
            raise CodecError(f"{where}: no base64") from None
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError:
            raise CodecError(f"{where}: no such {kind.__name__}") from None
    if kind is None or kind is type(None):
        if data is None:
            return None
        raise _refuse(where, "null", data)
    # bool is a subclass of int, but true is no number here.
    if kind in (bool, int, str) and type(data) is kind:
        return data
    raise _refuse(where, getattr(kind, "__name__", str(kind)), data)


def _float(data: object, where: str) -> float:
    if isinstance(data, str) and data in _NONFINITE:
        return _NONFINITE[data]
    if isinstance(data, int | float) and not isinstance(data, bool):
        with contextlib.suppress(OverflowError):  # a whole number that no float can be
            if math.isfinite(data):
                return float(data)
    raise _refuse(where, "a number", data)


def _union(kinds: tuple[Any, ...], data: object, where: str) -> Any:
    reasons = []
    for kind in kinds:
        try:
            return _decode(kind, data, where)
        except CodecError as error:
            reasons.append(str(error))
    raise CodecError(reasons[0])


def _tuple(kinds: tuple[Any, ...], data: object, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise _refuse(where, "a list", data)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(data) != len(kinds):
        raise CodecError(f"{where}: expected {len(kinds)} items, got {len(data)}")
    return tuple(
        _decode(kind, item, f"{where}[{i}]")
        for i, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _dataclass(kind: type[Any], data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise _refuse(where, "an object", data)
    hints = _hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise CodecError(f"{where}: unknown field {unknown[0]!r}")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _decode(hints[name], data[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CodecError(f"{where}: missing field {name!r}")
    return kind(**values)
