"""Typed requests: a class of msgspec says which fields a JSON object has. From it come the check of
what a client sends, the defaults, and the JSON schema in ``/openapi.json``.

A field with ``| None = None`` may be left out, and null counts as absent, as OpenAI's clients mean
it. What no type can say is checked by a method that raises `FieldError`, and told to readers of the
description by `Fields.also` or ``extra_json_schema``.

Fields of other servers that this one does not have: one that would change the reply is refused,
unless its value is the one that changes nothing; another one is named in a notice of the answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect

from localspec.core.errors import UsageError
from localspec.core.setting_spec import AUTO, Kind, SettingSpec
from localspec.serve.http.errors import bad_request
from localspec.serve.http.json_body import shown
from localspec.serve.http.wording import flat, inside, made_whole, worded

_MOST = 16
"""Names in a notice."""

NOT_NULL: dict[str, Any] = {"not": {"type": "null"}}
"""The schema of any other value than null."""
T = TypeVar("T")
_MOST_WHOLE = 16
"""Fields and arrays of a body that may have numbers such as 1.0 in place of whole ones."""
_NUMBERS = {Kind.NUMBER: "number", Kind.WHOLE: "integer"}


class Foreign(Struct, frozen=True):
    """A field that is refused where it would change the reply."""

    instead: str
    """What to do about it, after "NAME is not supported: "."""
    neutral: tuple[Any, ...] = ()
    """Values that change nothing, besides null."""
    at_times: tuple[Any, ...] = ()
    """Further ones that change nothing in the objects that are `so`."""
    so: Callable[[Mapping[str, Any]], bool] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the values that are taken."""
        values = [None, *self.neutral, *self.at_times]
        return {"enum": values, "description": f"not supported: {self.instead}"}

    def takes(self, value: object, given: Mapping[str, Any]) -> bool:
        """Whether a value changes nothing in the object ``given``."""
        values = self.neutral + (self.at_times if self.so is not None and self.so(given) else ())
        return value is None or any(_same(value, one) for one in values)


def _same(one: object, other: object) -> bool:
    """Whether two values are the same to JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def any_of(*names: str, **schema: Any) -> dict[str, Any]:
    """`Fields.also` of an object that has one of these fields, with a value of the ``schema``."""
    return {"anyOf": [{"required": [n], "properties": {n: schema}} for n in names]}


class Fields(Struct, kw_only=True):
    """An object of a request. Fields that are not declared are allowed, and have no effect."""

    also: ClassVar[dict[str, Any]] = {}
    """Keys of its JSON schema that its types do not say."""
    foreign: ClassVar[Mapping[str, Foreign]] = {}
    """Fields of other servers that are refused where they would change the reply."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Fields that clients often send and that have nothing to change here: the log leaves them
    out."""


class Body(Fields, kw_only=True):
    """The object that is the body of a request."""

    parts: ClassVar[tuple[type[Body], ...]] = ()
    """Types that read further fields of the same object: the prompt of a chat, for one, is also
    that of other endpoints."""

    @classmethod
    def completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The object with what its types need and clients may leave out."""
        return given

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """Names of what is not known in ``given``, the object that this was read from, and in the
        objects inside of it.
        """
        return [
            inside(place, shown(name))
            for place, names, one in _objects(type(self), given)
            for name in one
            if name not in names.known
        ]

    def refuse_foreign(self, given: dict[str, Any]) -> None:
        """Refuse what would change the reply and is not done here, in ``given``, the object that
        this was read from.

        Raises:
            ApiError: there is something.
        """
        for place, names, one in _objects(type(self), given):
            for name in one:
                found = names.refused.get(name)
                if found is not None and not found.takes(one[name], one):
                    where = inside(place, name)
                    raise bad_request(f"{where} is not supported: {found.instead}", where)

    def without_effect_in(self, given: dict[str, Any]) -> list[str]:
        """Names of all that changes nothing in ``given``, the object that this was read from."""
        named = [
            inside(place, name)
            for place, names, one in _objects(type(self), given)
            for name in one
            if name in names.without_effect and one[name] is not None
        ]
        return [*named, *self.ignored(given)]

    def notices(self, given: dict[str, Any]) -> tuple[str, ...]:
        """What an answer says of that; of very many, the first ones are named."""
        found = self.without_effect_in(given)
        if not found:
            return ()
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        return (f"without effect here: {', '.join(found[:_MOST])}{more}",)


class _Names(Struct, frozen=True):
    """Names of the fields that an object and its parts know; made once for each type."""

    known: frozenset[str]
    without_effect: frozenset[str]
    refused: Mapping[str, Foreign]
    objects: Mapping[str, list[type[Fields]]]
    """Fields that may have an object, and its types."""


def _objects(
    kind: type[Fields], given: dict[str, Any], place: str = ""
) -> Iterator[tuple[str, _Names, dict[str, Any]]]:
    """``given``, which was read as a ``kind``, and each object inside of it: its place, the names
    that its type knows, and the object. Those in arrays are left out: in messages, items and tools,
    programs send back whatever other servers have answered.
    """
    names = _names(kind)
    yield place, names, given
    for name, kinds in names.objects.items():
        value = given.get(name)
        if not isinstance(value, dict):
            continue
        for one in kinds:
            tags = one.__struct_config__
            if tags.tag_field is None or value.get(tags.tag_field) == tags.tag:
                yield from _objects(one, value, inside(place, name))


@functools.cache
def _names(kind: type[Fields]) -> _Names:
    kinds = (kind, *getattr(kind, "parts", ()))
    declared = {name for one in kinds for name in one.__struct_fields__}
    declared |= {kind.__struct_config__.tag_field or ""}
    idle = {name for one in kinds for name in one.without_effect}
    foreign = {name: found for one in kinds for name, found in one.foreign.items()}
    return _Names(
        known=frozenset(declared | idle | {*foreign}),
        without_effect=frozenset(idle - declared),
        refused={name: found for name, found in foreign.items() if name not in declared},
        objects={name: found for one in kinds for name, found in _object_fields(one) if found},
    )


def _object_fields(kind: type[Fields]) -> Iterator[tuple[str, list[type[Fields]]]]:
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        types = [one.cls for one in flat(field.type) if isinstance(one, inspect.StructType)]
        yield field.encode_name, [one for one in types if issubclass(one, Fields)]


def read(kind: type[T], given: Any) -> T:
    """The value of a type that a body holds.

    Raises:
        ApiError: 400, with the place of the first field that is wrong.
    """
    for _ in range(_MOST_WHOLE):
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            if not made_whole(given, error):
                wrong = worded(kind, given, error)
                said = wrong.message or f"{wrong.place or 'the body'} {wrong.what}"
                raise bad_request(said, wrong.place or None) from None
    raise bad_request("the body has too many whole numbers with a point: write 1, not 1.0")


def setting(spec: SettingSpec[Any], *, minus_one: str = "") -> Meta:
    """Annotates a field with the JSON schema of a setting, whose row also checks its values, in
    `checked`; ``minus_one`` says what -1 means where that is a value too.
    """
    text = f"{spec.help}; {minus_one}" if minus_one else spec.help
    return Meta(description=text, extra_json_schema=_described(spec, minus_one=bool(minus_one)))


def _described(spec: SettingSpec[Any], *, minus_one: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _NUMBERS.get(spec.kind, "string")}
    if spec.kind is Kind.CHOICE:
        found["enum"] = list(spec.choices)
    limits = {"minimum": spec.low, "maximum": spec.high}
    found |= {name: value for name, value in limits.items() if value is not None}
    others: list[dict[str, Any]] = [{"type": "null"}]
    if spec.smallest is not None:
        others.append({"const": 0})
        found["minimum"] = spec.smallest
    if minus_one:
        others.append({"const": -1})
    if spec.auto:
        others.append({"enum": ["", AUTO]})
    if spec.kind is Kind.LIST:
        others.append({"type": "array", "items": {"type": "string"}})
    return {"anyOf": [found, *others]}


def checked(name: str, spec: SettingSpec[Any], value: object) -> Any:
    """The value of a setting in the field ``name``; None if it is absent or automatic.

    Raises:
        ApiError: the row of the setting refuses it.
    """
    if value is None:
        return None
    try:
        if spec.kind is Kind.WHOLE and isinstance(value, float) and value.is_integer():
            value = int(value)  # to JSON 1.0 is a whole number
        return spec.check(value)
    except UsageError as error:
        own = name.rpartition(".")[2]
        raise bad_request(str(error).replace(spec.name, own, 1), name) from None
