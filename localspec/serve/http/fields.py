"""JSON bodies, read field by field: types are checked, errors name the field, the rest is known.

null counts as absent, as OpenAI's clients mean it.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from localspec.core.setting_spec import SettingSpec
from localspec.errors import UsageError
from localspec.serve.http.errors import ApiError, bad_request

_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)
_MOST_VALUES = 1 << 19
"""Values in a body: a bias for each token of a large vocabulary is half of that."""
_PARTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[,\[{]', re.DOTALL)
"""A text of JSON, closed or not, or what begins or separates values."""
_UNKNOWN_SHOWN = 40
"""Characters of an unknown field's name in a message or log."""


def parse(raw: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        ApiError: 400 if it holds none.
    """
    try:
        text = raw.decode(json.detect_encoding(raw))  # `json.loads` lets half characters pass
        _require_few(text)
        data = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:  # an escape for half a character is no Unicode
            json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise bad_request("the body is nested too deep") from None
    except UnicodeError:
        raise bad_request("the body holds text that is not valid Unicode") from None
    except ValueError as error:
        reason = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise bad_request(f"the body is not valid JSON{reason}") from None
    if not isinstance(data, dict):
        raise bad_request("the body must be a JSON object")
    return data


def _require_few(text: str) -> None:
    """Refuse more values than any request needs: in memory each takes many times its characters.

    Raises:
        ApiError: 413.
    """
    if text.count(",") + text.count("[") + text.count("{") <= _MOST_VALUES:
        return
    found = [part[0][0] for part in itertools.islice(_PARTS.finditer(text), 2 * _MOST_VALUES)]
    if len(found) == 2 * _MOST_VALUES or len(found) - found.count('"') > _MOST_VALUES:
        raise ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has more than {_MOST_VALUES} values, the most that this server reads",
            code="body_too_large",
        )


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


class Fields:
    """The fields of one JSON object."""

    def __init__(self, data: Mapping[str, Any], where: str = "") -> None:
        """``where`` is the place of the object in the body, as errors name it."""
        self._data = data
        self._where = where
        self._read: set[str] = set()

    def place(self, name: str) -> str:
        """The full name of a field."""
        return f"{self._where}.{name}" if self._where else name

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        self._read.add(name)
        return self._data.get(name) is not None

    def null(self, name: str) -> bool:
        """Whether the field is there as null, which counts as absent elsewhere."""
        self._read.add(name)
        return name in self._data and self._data[name] is None

    def raw(self, name: str) -> Any:
        """The field as it came; None if absent."""
        self._read.add(name)
        return self._data.get(name)

    def ignore(self, *names: str) -> None:
        """Count fields as known that have no effect here."""
        self._read.update(names)

    def unread(self) -> tuple[str, ...]:
        """Names of the fields of the request that were never read."""
        return tuple(name for name in self._data if name not in self._read)

    def refuse(self, name: str, what: str) -> ApiError:
        """The error for an invalid value; ``what`` completes "NAME ..."."""
        place = self.place(name)
        return bad_request(f"{place} {what}", place)

    def _typed(self, name: str, *kinds: type) -> Any:
        value = self.raw(name)
        if value is None:
            return None
        if type(value) not in kinds:
            wanted = _type_name(kinds[-1])
            raise self.refuse(name, f"must be {wanted}, not {_type_name(type(value))}")
        return value

    def text(self, name: str) -> str | None:
        """A string."""
        value: str | None = self._typed(name, str)
        return value

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value: bool | None = self._typed(name, bool)
        return value

    def number(self, name: str) -> float | None:
        """A number; a whole one of any size is one."""
        value = self._typed(name, int, float)
        if value is None:
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.refuse(name, "is a number of an impossible size")
        return number

    def whole(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        """A whole number, between two limits where they are given."""
        value: int | None = self._typed(name, int)
        if value is None:
            return None
        if low is not None and value < low:
            raise self.refuse(name, f"must be at least {low}")
        if high is not None and value > high:
            raise self.refuse(name, f"must be at most {high}")
        return value

    def limit(self, name: str, low: int) -> int | None:
        """A largest number of tokens; -1 is none, as LM Studio and llama.cpp have it."""
        return None if self.raw(name) == -1 else self.whole(name, low)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        """One of several strings."""
        value = self.text(name)
        if value is not None and value not in choices:
            raise self.refuse(name, f"must be one of {', '.join(choices)}")
        return value

    def setting(self, name: str, spec: SettingSpec[Any]) -> Any:
        """A value of a setting of localspec, checked by its row; None if absent."""
        value = self.raw(name)
        if value is None:
            return None
        try:
            return spec.check(value)
        except UsageError as error:
            message = str(error)
            if spec.name != name:
                message = message.replace(spec.name, name, 1)
            raise bad_request(message, self.place(name)) from None

    def items(self, name: str) -> list[Any] | None:
        """An array."""
        value: list[Any] | None = self._typed(name, list)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or an array of strings; empty if absent."""
        value = self.raw(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(name, "must be a string or an array of strings")
        return tuple(value)

    def object(self, name: str) -> Fields | None:
        """An object."""
        value = self._typed(name, dict)
        return None if value is None else Fields(value, self.place(name))

    def objects(self, name: str) -> list[Fields] | None:
        """An array of objects."""
        value = self.items(name)
        if value is None:
            return None
        found = []
        for i, item in enumerate(value):
            place = f"{self.place(name)}[{i}]"
            if not isinstance(item, dict):
                raise bad_request(f"{place} must be an object", place)
            found.append(Fields(item, place))
        return found

    def as_dict(self) -> dict[str, Any]:
        """The object as it came."""
        return dict(self._data)


def _type_name(kind: type) -> str:
    return next((text for known, text in _NAMES if known is kind), "null")


def shown(name: str) -> str:
    """A field's name, short enough for a line of the log."""
    return name if len(name) <= _UNKNOWN_SHOWN else f"{name[:_UNKNOWN_SHOWN]}..."


__all__ = ["Fields", "parse", "shown"]
