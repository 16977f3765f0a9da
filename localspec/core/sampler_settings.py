"""The settings of llama.cpp's further samplers, and how their lists are read.

Names, defaults and meanings are llama.cpp's (``common_params_sampling``, llama-server); the rows
are part of `localspec.core.settings_schema`. Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from localspec.core import json_text
from localspec.core.errors import UsageError
from localspec.core.setting_spec import Kind, Scope, SettingSpec

ORDER = (
    *("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"),
    "temperature",
)
"""The samplers in llama.cpp's order."""
NONE = "none"
"""No sampler at all."""
_LETTERS = dict(zip("edskypmxt", ORDER, strict=True))
"""llama.cpp's letter of each."""
_SHORT = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"}
_NAMES = (
    {name: name for name in ORDER}
    | {name.replace("_", "-"): name for name in ORDER}
    | {name.replace("_", ""): name for name in ORDER}
    | _SHORT
)
_LACKING = {"infill": "infill", "adaptive_p": "adaptive_p", "adaptive-p": "adaptive_p"}
_LACKING |= {"adaptivep": "adaptive_p", "i": "infill", "a": "adaptive_p"}
_MOST_SAMPLERS = 32
_MOST_TIMES = 2
"""That a sampler is listed: each may sort the vocabulary, while all others wait."""
_MOST_BREAKERS = 64
_LONGEST_BREAKER = 40
"""Bytes, as in llama.cpp, which cuts longer ones."""


def read_samplers(given: str | Sequence[str]) -> str:
    """The samplers of a list as names with commas, in ORDER's words: a text has names separated by
    commas or semicolons, or is one word of llama.cpp's letters (``--sampler-seq``, "edskypmxt");
    "none" is no sampler at all, and an empty text llama.cpp's order.

    Raises:
        UsageError: there is no such sampler, or the text may mean two things.
    """
    if isinstance(given, str):
        given = given.strip()
        if not given:
            return SAMPLERS.default
        names = [] if given == NONE else given.replace(";", ",").split(",")
        if len(names) == 1 and set(given) <= {*_LETTERS, "i", "a"}:
            if given in _SHORT:
                raise UsageError(
                    f"samplers {given} may be a name or letters; write {_SHORT[given]}, or "
                    f"{','.join(_LETTERS[letter] for letter in given)}"
                )
            names = [*given]
            return _known([_LETTERS.get(letter, letter) for letter in names])
    else:
        names = [*given]
    return _known([name.strip().lower() for name in names])


def _known(names: Sequence[str]) -> str:
    if len(names) > _MOST_SAMPLERS:
        raise UsageError(f"samplers has {len(names)} names; {_MOST_SAMPLERS} is the most")
    for name in names:
        if name in _LACKING:
            raise UsageError(f"samplers: localspec has no {_LACKING[name]}; leave it out")
        if name not in _NAMES:
            known = ", ".join(ORDER)
            raise UsageError(f"no sampler called {name[:40]!r} for samplers; there are: {known}")
    found = [_NAMES[name] for name in names]
    for name in found:
        if found.count(name) > _MOST_TIMES:
            raise UsageError(
                f"samplers names {name} {found.count(name)} times; {_MOST_TIMES} is the most"
            )
    return ",".join(found) or NONE


def read_breakers(given: str | Sequence[str]) -> str:
    """The texts of a list as JSON; a text is such a list, with or without its brackets, and an
    empty text stands for llama.cpp's.

    Raises:
        UsageError: it is none, or a text is empty or too long.
    """
    found: Any = given
    if isinstance(given, str):
        text = given.strip()
        if not text:
            return DRY_SEQUENCE_BREAKERS.default
        try:
            found = json_text.read(text if text.startswith("[") else f"[{text}]")
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise UsageError(
            'dry_sequence_breakers must be a list of texts in JSON, such as ["\\n", ":"]'
        )
    if len(found) > _MOST_BREAKERS:
        raise UsageError(
            f"dry_sequence_breakers has {len(found)} texts; {_MOST_BREAKERS} is the most"
        )
    for one in found:
        if not 0 < len(one.encode("utf-8", "replace")) <= _LONGEST_BREAKER:
            raise UsageError(
                f"each of dry_sequence_breakers must have 1 to {_LONGEST_BREAKER} bytes"
            )
    return json.dumps([*found], ensure_ascii=False)


def _number(name: str, default: float, low: float, high: float, help: str) -> SettingSpec[float]:  # noqa: A002 - the field
    return SettingSpec(
        name=name,
        kind=Kind.NUMBER,
        scope=Scope.SAMPLING,
        default=default,
        help=help,
        low=low,
        high=high,
        in_panel=True,
    )


def _whole(
    name: str,
    default: int,
    high: int,
    help: str,  # noqa: A002 - the field
    short: str = "",
) -> SettingSpec[int]:
    return SettingSpec(
        name=name,
        kind=Kind.WHOLE,
        scope=Scope.SAMPLING,
        default=default,
        help=help,
        low=0,
        high=high,
        short=short,
        in_panel=True,
    )


_LARGEST = 1 << 30

DRY_MULTIPLIER = _number("dry_multiplier", 0.0, 0, 100, "DRY, the penalty of a repetition; 0 = off")
DRY_BASE = _number("dry_base", 1.75, 1, 100, "DRY: factor for each repeated token")
DRY_ALLOWED_LENGTH = _whole(
    "dry_allowed_length", 2, _LARGEST, "DRY: repeated tokens without penalty", "dry allowed"
)
DRY_PENALTY_LAST_N = _whole(
    "dry_penalty_last_n", 64, _LARGEST, "DRY: recent tokens searched; 0 = none", "dry last n"
)
DRY_SEQUENCE_BREAKERS: SettingSpec[str] = SettingSpec(
    name="dry_sequence_breakers",
    kind=Kind.LIST,
    scope=Scope.SAMPLING,
    default=json.dumps(["\n", ":", '"', "*"]),
    help="DRY: texts between repetitions; a list in JSON",
    metavar="JSON",
    reads=read_breakers,
    short="dry breakers",
    in_panel=True,
)
TOP_N_SIGMA = _number(
    "top_n_sigma",
    0.0,
    0,
    1e6,
    "keep logits within N deviations of the top; 0 = off",
)
TYPICAL_P = _number("typical_p", 1.0, 0, 1, "keep typical tokens up to this sum; 1 = off")
XTC_PROBABILITY = _number(
    "xtc_probability", 0.0, 0, 1, "XTC: chance to drop the best tokens; 0 = off"
)
XTC_THRESHOLD = _number("xtc_threshold", 0.1, 0, 1, "XTC: the probability of those; over 0.5 = off")
DYNATEMP_RANGE = _number(
    "dynatemp_range", 0.0, 0, 100, "temperature varies by this and the entropy; 0 = off"
)
DYNATEMP_EXPONENT = _number("dynatemp_exponent", 1.0, 0, 100, "power of the entropy in it")
MIROSTAT = _whole("mirostat", 0, 2, "Mirostat 1 or 2, in place of others; 0 = off")
MIROSTAT_TAU = _number("mirostat_tau", 5.0, 0, 100, "Mirostat: bits that it aims at")
MIROSTAT_ETA = _number("mirostat_eta", 0.1, 0, 1, "Mirostat: how fast it learns")
SAMPLERS: SettingSpec[str] = SettingSpec(
    name="samplers",
    kind=Kind.LIST,
    scope=Scope.SAMPLING,
    default=",".join(ORDER),
    help="samplers in order; those left out are off",
    metavar="NAMES",
    reads=read_samplers,
    in_panel=True,
)

ROWS: tuple[SettingSpec[Any], ...] = (
    *(DRY_MULTIPLIER, DRY_BASE, DRY_ALLOWED_LENGTH, DRY_PENALTY_LAST_N, DRY_SEQUENCE_BREAKERS),
    *(TOP_N_SIGMA, TYPICAL_P, XTC_PROBABILITY, XTC_THRESHOLD, DYNATEMP_RANGE, DYNATEMP_EXPONENT),
    *(MIROSTAT, MIROSTAT_TAU, MIROSTAT_ETA, SAMPLERS),
)
"""In the order of the help text."""
