"""The JSON of bodies, within limits; `localspec.serve.http.typed` reads it into typed requests."""

from __future__ import annotations

import itertools
import json
import re
from http import HTTPStatus
from typing import Any

from localspec.serve.http.errors import ApiError, bad_request

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


def shown(name: str) -> str:
    """A field's name, short enough for a line of the log."""
    return name if len(name) <= _UNKNOWN_SHOWN else f"{name[:_UNKNOWN_SHOWN]}..."
