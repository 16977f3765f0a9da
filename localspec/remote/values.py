"""Values of a server's JSON, which may be anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from localspec.core.safe_text import safe_line

_MOST = 1 << 53
_LONGEST_NAME = 200


def count(value: object) -> int | None:
    """A count; None if the value is none."""
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if whole and 0 <= value < _MOST else None  # type: ignore[operator, call-overload]


def number(value: object) -> float | None:
    """A number of zero or more; None if the value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST and math.isfinite(value) else None


def mapping(value: object) -> Mapping[str, Any]:
    """An object; empty if the value is none."""
    return value if isinstance(value, dict) else {}


def name(value: object) -> str:
    """A short name that can be shown; "" if the value is none."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or safe_line(value) != value:
        return ""
    return value
