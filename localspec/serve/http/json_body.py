"""The JSON of bodies, within limits; `localspec.serve.http.typed` reads it into typed requests."""

from __future__ import annotations

import itertools
import json
import re
from http import HTTPStatus
from typing import Any

from localspec.core import json_text
from localspec.serve.http.errors import ApiError, bad_request

_MOST_VALUES = 1 << 19
"""Values in a body: a prompt as tokens has as many as the context of a model."""
_MOST_NAMES = 1 << 17
"""Values with a name among them: names take ten times as long as elements of arrays."""
_MOST_FRACTIONS = 1 << 16
"""Numbers with a fraction or an exponent: to write one exactly takes two microseconds."""
_LONGEST_NUMBER = 400
"""Characters: the time to read or write a number grows with their square."""
_PARTS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,:\[{]', re.DOTALL)
"""A text of JSON, closed or not, or what begins or separates values. Nothing of it is tried again:
else each escape would take 100 bytes until the text has ended.
"""
_NOT_UNICODE = "the body holds text that is not valid Unicode"
_UNKNOWN_SHOWN = 40
"""Characters of an unknown field's name in a message or log."""


def parse(raw: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        ApiError: 400 if it holds none, 413 if it holds too much.
    """
    data = parse_value(raw)
    if not isinstance(data, dict):
        raise bad_request("the body must be a JSON object")
    return data


def parse_value(raw: bytes) -> Any:
    """The value that a body holds; otherwise as `parse`."""
    numbers = _Numbers()
    try:
        text = raw.decode(json.detect_encoding(raw))  # `json.loads` lets half characters pass
        _require_few(text)
        data = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=numbers.whole,
            parse_float=numbers.fraction,
        )
        json_text.require_shallow(text, data)
        if "\\ud" in text or "\\uD" in text:
            _require_whole(data)
    except RecursionError:
        raise bad_request(
            f"the body is nested too deep: {json_text.MOST_DEPTH} arrays and objects inside each "
            "other are the most"
        ) from None
    except UnicodeError:
        raise bad_request(_NOT_UNICODE) from None
    except ValueError as error:
        reason = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise bad_request(f"the body is not valid JSON{reason}") from None
    return data


def _require_whole(data: Any) -> None:
    """Refuse half a character in a text of a value that is not nested deep.

    Raises:
        UnicodeError: there is one.
    """
    left = [data]
    while left:
        one = left.pop()
        if isinstance(one, str):
            one.encode()
        elif isinstance(one, dict):
            left += one
            left += one.values()
        elif isinstance(one, list):
            left += one


class _Numbers:
    """Reads numbers within limits. Its methods are Python's so that other threads have their turn
    between two numbers: all of a body is read in one call.
    """

    def __init__(self) -> None:
        self._fractions = 0

    def whole(self, text: str) -> int:
        """A whole number.

        Raises:
            ApiError: it is too long.
        """
        self._require_short(text)
        return int(text)

    def fraction(self, text: str) -> float:
        """Another number.

        Raises:
            ApiError: it is too long, beyond floating point, or one too many.
        """
        self._require_short(text)
        self._fractions += 1
        if self._fractions > _MOST_FRACTIONS:
            raise _too_large(f"{_MOST_FRACTIONS} numbers that are not whole")
        try:
            return json_text.finite(text)
        except ValueError:
            raise bad_request(
                f"the body has a number beyond floating point: {shown(text)}"
            ) from None

    @staticmethod
    def _require_short(text: str) -> None:
        if len(text) > _LONGEST_NUMBER:
            raise bad_request(
                f"a number in the body has {len(text)} characters, and {_LONGEST_NUMBER} are the "
                "most"
            )


def _require_few(text: str) -> None:
    """Refuse more values than any request needs: in memory each takes many times its characters.

    Raises:
        ApiError: 413.
    """
    values = text.count(",") + text.count("[") + text.count("{")
    if values <= _MOST_VALUES and text.count(":") <= _MOST_NAMES:
        return
    most = 2 * (_MOST_VALUES + _MOST_NAMES)
    found = [part[0][0] for part in itertools.islice(_PARTS.finditer(text), most)]
    names = found.count(":")
    if len(found) == most or len(found) - found.count('"') - names > _MOST_VALUES:
        raise _too_large(f"{_MOST_VALUES} values")
    if names > _MOST_NAMES:
        raise _too_large(f"{_MOST_NAMES} values with a name")


def _too_large(what: str) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has more than {what}, the most that this server reads",
        code="body_too_large",
    )


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def shown(name: str) -> str:
    """A field's name, short enough for a line of the log."""
    return name if len(name) <= _UNKNOWN_SHOWN else f"{name[:_UNKNOWN_SHOWN]}..."
