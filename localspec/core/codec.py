"""Frozen dataclasses to plain JSON values and back, checked strictly against their type hints.

Missing fields take their default; unknown fields, wrong types, whole numbers of more than 64 bits
and NaN are refused with a line that names the place. Infinities travel as the strings "inf" and
"-inf", since JSON has no word for them, and bytes as base64. Of each type a decoder is made once: a
server decodes in every request.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")

_NONFINITE = {"inf": math.inf, "-inf": -math.inf}
_WHOLE = 1 << 64
"""Whole numbers are less than this: what is counted with others could be no float."""
_TOO_MANY_BITS = "a whole number of more than 64 bits"
_Where = tuple[Any, ...]
"""A place: the one that it is in, and its own part of the name; () is none."""
_Decoder = Callable[[object, _Where], Any]


class CodecError(ValueError):
    """A value that does not have the promised shape."""


def encode(value: object, *, sparse: bool = False, bounded: bool = False) -> Any:
    """A JSON value for a dataclass, or for what a dataclass may hold. With ``sparse``, fields of
    dataclasses that have their default are left out; with ``bounded``, whole numbers that `decode`
    would refuse are refused here.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int:
        return _encoded_whole(value, bounded=bounded)
    if dataclasses.is_dataclass(kind):
        fields = ((name, getattr(value, name), default) for name, default in _fields(kind))
        return {
            name: encode(item, sparse=sparse, bounded=bounded)
            for name, item, default in fields
            if not (sparse and type(item) is type(default) and item == default)
        }
    if isinstance(value, Mapping):
        return {
            str(key): encode(item, sparse=sparse, bounded=bounded) for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | str):
        return [encode(item, sparse=sparse, bounded=bounded) for item in value]
    return _encoded_scalar(value, bounded=bounded)


def _encoded_scalar(value: object, *, bounded: bool) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _encoded_float(value)
    if isinstance(value, int):  # a kind of these
        return _encoded_whole(value, bounded=bounded)
    if isinstance(value, str):
        return value
    raise CodecError(f"{type(value).__name__} cannot be sent")


def _encoded_whole(value: Any, *, bounded: bool) -> Any:
    if bounded and not -_WHOLE <= value < _WHOLE:
        raise CodecError(_TOO_MANY_BITS)
    return value


def _encoded_float(value: float) -> float | str:
    if math.isnan(value):
        raise CodecError("NaN cannot be sent")
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


@functools.cache
def _fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Name and default of each field."""
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


def decode(kind: type[T], data: object, where: str = "") -> T:
    """The value of type ``kind`` that ``data`` encodes."""
    made: Callable[..., _Decoder] = _decoder
    value: T = made(kind)(data, ((), where or getattr(kind, "__name__", "value")))
    return value


def _refuse(where: _Where, expected: str, data: object) -> CodecError:
    return _wrong(where, f"expected {expected}, got {type(data).__name__}")


def _wrong(where: _Where, what: str) -> CodecError:
    parts: list[str] = []
    while where:
        where, part = where
        parts.append(part)
    return CodecError(f"{''.join(reversed(parts))}: {what}")


@functools.cache
def _decoder(kind: Any) -> _Decoder:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        return _union(inner)
    if origin is Literal:
        return _literal(inner)
    if origin is tuple:
        return _tuple(inner)
    if origin in (dict, Mapping):
        return _mapping(inner[1])
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast("type[Any]", kind))
    return _scalar(kind)


def _literal(choices: tuple[Any, ...]) -> _Decoder:
    def decoded(data: object, where: _Where) -> Any:
        if isinstance(data, str) and data in choices:
            return data
        raise _wrong(where, f"expected one of {', '.join(map(str, choices))}")

    return decoded


def _mapping(kind: Any) -> _Decoder:
    item = _decoder(kind)

    def decoded(data: object, where: _Where) -> Any:
        if not isinstance(data, dict):
            raise _refuse(where, "an object", data)
        return {key: item(value, (where, f".{key}")) for key, value in data.items()}

    return decoded


def _scalar(kind: Any) -> _Decoder:
    if kind is Any:
        return lambda data, _: data
    own: dict[Any, _Decoder] = {float: _float, int: _whole, bytes: _bytes, type(None): _null}
    if kind in own:
        return own[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    name, known = getattr(kind, "__name__", str(kind)), kind in (bool, str)

    def decoded(data: object, where: _Where) -> Any:
        if known and type(data) is kind:
            return data
        raise _refuse(where, name, data)

    return decoded


def _null(data: object, where: _Where) -> None:
    if data is not None:
        raise _refuse(where, "null", data)


def _bytes(data: object, where: _Where) -> bytes:
    if not isinstance(data, str):
        raise _refuse(where, "bytes", data)
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise _wrong(where, "no base64") from None


def _enum(kind: type[enum.Enum]) -> _Decoder:
    def decoded(data: object, where: _Where) -> Any:
        try:
            return kind(data)
        except ValueError:
            raise _wrong(where, f"no such {kind.__name__}") from None

    return decoded


def _whole(data: object, where: _Where) -> int:
    # bool is a subclass of int, but true is no number here.
    if type(data) is not int:
        raise _refuse(where, "int", data)
    if not -_WHOLE <= data < _WHOLE:
        raise _wrong(where, _TOO_MANY_BITS)
    return data


def _float(data: object, where: _Where) -> float:
    if isinstance(data, str) and data in _NONFINITE:
        return _NONFINITE[data]
    if isinstance(data, int | float) and not isinstance(data, bool):
        with contextlib.suppress(OverflowError):  # a whole number that no float can be
            if math.isfinite(data):
                return float(data)
    raise _refuse(where, "a number", data)


def _union(kinds: tuple[Any, ...]) -> _Decoder:
    optional = type(None) in kinds
    options = [_decoder(kind) for kind in kinds]

    def decoded(data: object, where: _Where) -> Any:
        if optional and data is None:
            return None
        first: CodecError | None = None
        for option in options:
            try:
                return option(data, where)
            except CodecError as error:
                first = first or error
        assert first is not None  # there are several kinds
        raise CodecError(str(first))

    return decoded


def _tuple(kinds: tuple[Any, ...]) -> _Decoder:
    any_length = len(kinds) == 2 and kinds[1] is Ellipsis
    items = [_decoder(kind) for kind in kinds if kind is not Ellipsis]

    def decoded(data: object, where: _Where) -> Any:
        if not isinstance(data, list):
            raise _refuse(where, "a list", data)
        if any_length:
            return tuple(items[0](one, (where, f"[{i}]")) for i, one in enumerate(data))
        if len(data) != len(items):
            raise _wrong(where, f"expected {len(items)} items, got {len(data)}")
        pairs = enumerate(zip(items, data, strict=True))
        return tuple(item(one, (where, f"[{i}]")) for i, (item, one) in pairs)

    return decoded


def _dataclass(kind: type[Any]) -> _Decoder:
    @functools.cache
    def fields() -> dict[str, tuple[_Decoder, str, bool]]:
        """By name its decoder, its part of a place, and whether it may be missing; made when one is
        decoded, since a class may hold others of itself.
        """
        hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
        return {
            f.name: (
                _decoder(hints[f.name]),
                f".{f.name}",
                f.default is not missing or f.default_factory is not missing,
            )
            for f in dataclasses.fields(kind)
            if f.init
        }

    def decoded(data: object, where: _Where) -> Any:
        if not isinstance(data, dict):
            raise _refuse(where, "an object", data)
        known = fields()
        unknown = sorted(data.keys() - known.keys())
        if unknown:
            raise _wrong(where, f"unknown field {unknown[0]!r}")
        values = {}
        for name, (field, part, may_miss) in known.items():
            if name in data:
                values[name] = field(data[name], (where, part))
            elif not may_miss:
                raise _wrong(where, f"missing field {name!r}")
        return kind(**values)

    return decoded
