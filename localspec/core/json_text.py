"""JSON that a request holds as a text: calls, schemas, variables. One step reads all of a text, and
no other thread has its turn meanwhile, so what makes that step long has limits.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

from localspec.core.errors import UsageError

MOST_MARKS = 1 << 18
"""Most commas, colons and opening brackets of a text. Names are half of them at most, and the most
costly.
"""
MOST_FRACTIONS = 1 << 16
"""Numbers with a fraction or an exponent: to write one exactly takes two microseconds."""
LONGEST_NUMBER = 400
"""Characters: the time to read or write a number grows with their square."""
MOST_DEPTH = 128
"""Most arrays and objects inside each other, more than any schema has. Templates, `json` and what
walks through a value go into each of them by a call, and Python has a most of calls.
"""
_NESTS = frozenset({dict, list})


def read(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: it is no JSON.
        UsageError: it has too many values, too long a number, or is nested too deep.
    """
    marks = sum(text.count(mark) for mark in ",:[{")
    if marks > MOST_MARKS:
        raise _too_much(f"{marks} commas, colons and brackets", MOST_MARKS)
    fractions = itertools.count(1)

    def fraction(number: str) -> float:
        if next(fractions) > MOST_FRACTIONS:
            raise _too_much("more numbers that are not whole", MOST_FRACTIONS)
        return float(_short(number))

    try:
        found = json.loads(text, parse_int=lambda n: int(_short(n)), parse_float=fraction)
        require_shallow(text, found)
    except RecursionError:
        raise _too_much("too many arrays and objects inside each other", MOST_DEPTH) from None
    return found


def require_shallow(text: str, value: Any) -> None:
    """Refuse what is nested too deep to be walked through; ``text`` is what it was read from.

    Raises:
        RecursionError: it is.
    """
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    level: list[Any] = [[value]]
    for _ in range(MOST_DEPTH + 1):
        inside = (one.values() if type(one) is dict else one for one in level)
        # By `isinstance`, hundreds of thousands of values would take ten times as long.
        level = [one for values in inside for one in values if type(one) in _NESTS and one]
        if not level:
            return
    raise RecursionError(f"it is nested deeper than {MOST_DEPTH}")


def read_plain(text: str) -> Any:
    """The value of a text, all of which can be written as JSON and as UTF-8 again.

    Raises:
        ValueError: it is no JSON, or holds a number beyond floating point, half a character, or an
            object with a name twice.
        RecursionError: it is nested too deep.
    """
    found = json.loads(text, parse_float=finite, parse_constant=finite, object_pairs_hook=_single)
    require_shallow(text, found)
    if "\\u" in text:  # else there is no half of a character, unless it stands there as such
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, of which each name has one value, as every reader of its text sees it.

    Raises:
        ValueError: an object has two values of one name.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has two values of {name!r}")
        found[name] = value
    return found


def finite(number: str) -> float:
    """A number that is not whole, for `json.loads`.

    Raises:
        ValueError: it is beyond floating point, or none.
    """
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{number} is a number beyond floating point")
    return found


def object_or_text(text: str) -> dict[str, Any]:
    """The arguments of a call, for answers that hold them as JSON. Where Python has no value for
    them that can be written again (`read_plain`), or they were cut, their text is under
    "arguments".
    """
    try:
        found = read_plain(text or "{}")
    except (ValueError, RecursionError):
        return {"arguments": text}
    return found if isinstance(found, dict) else {"arguments": text}


def _short(number: str) -> str:
    if len(number) > LONGEST_NUMBER:
        raise _too_much(f"a number of {len(number)} characters", LONGEST_NUMBER)
    return number


def _too_much(what: str, most: int) -> UsageError:
    return UsageError(f"a JSON text of the request has {what}, and {most} is the most")
