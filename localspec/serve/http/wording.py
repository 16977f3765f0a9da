"""Our words for what is wrong with a value: msgspec's errors name types of Python, and neither
choices nor the key of an object.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from localspec.serve.http.json_body import shown

_AT = re.compile(r" - at `(?:key` in `)?\$([^`]*)`")
_LONGEST_WHAT = 200
"""Characters of msgspec's words that are looked at: they may quote all of a body."""
_STEP = r"\.([^.\[]+)|\[(\d+|\.\.\.)\]"
_KINDS = r"Expected `([a-z |]+)`, got `([a-z]+)`"
_LIMIT = r"Expected `[a-z]+` (>=|<=) (\S+)"
_LENGTH = r"Expected `([a-z]+)` of length (>=|<=) (\d+)"
_NAMED = r"(?s)Object (missing required|contains unknown) field `(.*)`"
_WORDS = {
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "array": "an array",
    "list": "an array",
    "object": "an object",
    "dict": "an object",
    "null": "null",
}
_SOME_KEY = "..."
"""How msgspec writes a key of a mapping in a path."""
REFUSAL = "refusal"
"""Key of ``Meta.extra``: what is said of any wrong value."""


class FieldError(ValueError):
    """A field that is wrong. ``what`` completes "PLACE ...", unless ``message`` says all."""

    def __init__(self, place: str, what: str, message: str = "") -> None:
        super().__init__(place, what)
        self.place = place
        self.what = what
        self.message = message


def worded(kind: Any, given: Any, error: msgspec.ValidationError) -> FieldError:
    """What is wrong with ``given``, of which msgspec says ``error`` as it reads a ``kind``."""
    what, path = _divided(error)
    place = path.removeprefix(".")
    cause = error.__cause__
    if isinstance(cause, FieldError):  # of a check of ours
        return FieldError(inside(place, cause.place), cause.what, cause.message)
    named = re.fullmatch(_NAMED, what)
    if named is not None:
        said = "is missing" if named[1].startswith("missing") else f"is no field of {place}"
        return FieldError(inside(place, shown(named[2])), said)
    types = [*_types(_type(kind), given, path)]
    kinds = re.fullmatch(_KINDS, what)
    if kinds is not None:
        if kinds[2] == "null" and not place.endswith("]"):
            return FieldError(place, "is missing")
        said = _of_kinds(kinds[1].split(" | "), kinds[2])
        return FieldError(place, said if kinds[1] == "object" else _refused(types) or said)
    if what.startswith("Invalid"):
        choices = _choices(types)
        either = "one of " if len(choices) > 1 else ""
        return FieldError(place, _refused(types) or f"must be {either}{', '.join(choices)}")
    return FieldError(place, _refused(types) or _of_limits(what, _value(given, path)))


def made_whole(given: Any, error: msgspec.ValidationError) -> bool:
    """Write 1 in place of 1.0, a whole number to JSON, where ``error`` says that one is wanted, and
    in the whole array if it is in one. Whether there was such a place.
    """
    what, path = _divided(error)
    kinds = re.fullmatch(_KINDS, what)
    if kinds is None or kinds[2] != "float" or "int" not in kinds[1].split(" | "):
        return False
    *steps, last = _steps(path)
    for step in steps:
        given = _inner(given, step)
    value = _inner(given, last)
    if value is None or not value.is_integer():
        return False
    if isinstance(given, list):
        given[:] = [int(v) if isinstance(v, float) and v.is_integer() else v for v in given]
    else:
        given[last] = int(value)
    return True


def _divided(error: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says is wrong, and the path of the value without its ``$``."""
    said = str(error)
    at = said.rfind(" - at `")
    found = _AT.fullmatch(said, at) if at >= 0 else None
    what, path = (said, "") if found is None else (said[:at], found[1])
    if len(what) > _LONGEST_WHAT:  # a name that it quotes keeps its end
        what = what[:_LONGEST_WHAT] + what[-1]
    return what, path


def kind_of(value: object) -> str:
    """The kind of a JSON value."""
    return _WORDS.get(type(value).__name__, "null")


def inside(place: str, name: str) -> str:
    """The place of a field in an object at ``place``."""
    return f"{place}.{name}" if place and name else place or name


def _of_kinds(wanted: list[str], got: str) -> str:
    """``wanted`` and ``got`` are msgspec's names of types."""
    words = [_WORDS.get(one, one) for one in wanted if one != "null"]
    return f"must be {' or '.join(words)}, not {_WORDS.get(got, got)}"


def _of_limits(what: str, value: Any) -> str:
    length = re.fullmatch(_LENGTH, what)
    if length is not None:
        kind, side, most = length.groups()
        things = "characters" if kind == "str" else "items"
        if side == "<=":
            return f"has {len(value)} {things}; {most} is the most"
        return "must not be empty" if most == "1" else f"must have at least {most} {things}"
    limit = re.fullmatch(_LIMIT, what)
    if limit is not None:
        return f"must be at {'least' if limit[1] == '>=' else 'most'} {limit[2]}"
    return "is a number of an impossible size" if "out of range" in what else f"is wrong: {what}"


# -- where the error is ----------------------------------------------------------------------------


@functools.cache
def _type(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _steps(path: str) -> Iterator[str | int]:
    for name, index in re.findall(_STEP, path):
        yield name or (int(index) if index.isdecimal() else index)


def _inner(given: Any, step: str | int) -> Any:
    """A value inside of another; None inside of a mapping, where msgspec names no key."""
    return None if given is None or step == _SOME_KEY else given[step]


def _value(given: Any, path: str) -> Any:
    for step in _steps(path):
        given = _inner(given, step)
    return given


def _types(kind: inspect.Type, given: Any, path: str) -> Iterator[inspect.Type]:
    """The types that a value at ``path`` may have; the annotations among them, outer ones first."""
    types = [*flat(kind)]
    for step in _steps(path):
        inner: list[inspect.Type] = []
        for one in types:
            if isinstance(one, inspect.StructType) and isinstance(step, str):
                inner += _of_field(one, given, step)
            elif isinstance(one, inspect.ListType) and isinstance(step, int):
                inner += flat(one.item_type)
            elif isinstance(one, inspect.DictType) and step == _SOME_KEY:
                inner += flat(one.value_type)
        if any(isinstance(one, inspect.StructType) and one.tag_field == step for one in types):
            inner = [*_annotations(types), *inner]  # of the whole union, whose tag is wrong
        types, given = inner, _inner(given, step)
    yield from types


def flat(kind: inspect.Type) -> Iterator[inspect.Type]:
    """A type, and what it is made of where it is annotated or a union."""
    yield kind
    if isinstance(kind, inspect.Metadata):
        yield from flat(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from flat(one)


def _of_field(struct: inspect.StructType, given: Any, name: str) -> Iterator[inspect.Type]:
    if struct.tag_field == name:
        yield inspect.LiteralType((struct.tag,))
    elif struct.tag_field is None or (given or {}).get(struct.tag_field) == struct.tag:
        for field in struct.fields:
            if field.encode_name == name:
                yield from flat(field.type)


def _annotations(types: list[inspect.Type]) -> list[inspect.Type]:
    return [one for one in types if isinstance(one, inspect.Metadata)]


def _refused(types: list[inspect.Type]) -> str:
    """What an annotation says of wrong values."""
    for one in types:
        if isinstance(one, inspect.Metadata) and one.extra is not None and REFUSAL in one.extra:
            return str(one.extra[REFUSAL])
    return ""


def _choices(types: list[inspect.Type]) -> list[str]:
    values = (one.values for one in types if isinstance(one, inspect.LiteralType))
    return [str(value) for several in values for value in several]
