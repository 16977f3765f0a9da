"""The settings of the scope SAMPLING, and how lists of samplers and of DRY's texts are read.

Names, defaults and meanings are llama.cpp's (``common_params_sampling``, llama-server); the rows
are part of `localspec.core.settings_schema`. Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

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
SMALLEST: Final = 1e-6
"""Logits divided by less than this overflow."""
_LARGEST: Final = 1 << 30


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
        except ValueError:
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


def _number(
    name: str, default: float, low: float, high: float, about: str, **more: Any
) -> SettingSpec[float]:
    """The row of a number; ``about`` is its help, ``more`` are further fields."""
    return SettingSpec(
        name, Kind.NUMBER, Scope.SAMPLING, default, about, low, high, in_panel=True, **more
    )


def _whole(name: str, default: int, high: int, about: str, short: str = "") -> SettingSpec[int]:
    """The row of a whole number from 0 on."""
    return SettingSpec(
        name, Kind.WHOLE, Scope.SAMPLING, default, about, 0, high, short=short, in_panel=True
    )


TEMPERATURE = _number(
    "temperature",
    0.8,
    0,
    100,
    "randomness of sampling; 0 = always the most probable token",
    smallest=SMALLEST,
    flags=("-t", "--temp"),
)
TOP_K = _whole("top_k", 40, _LARGEST, "keep the N most probable tokens; 0 = off")
TOP_P = _number("top_p", 0.95, 0, 1, "keep the likeliest tokens up to this sum; 1 = off")
MIN_P = _number("min_p", 0.05, 0, 1, "drop tokens below this share of the best; 0 = off")
REPEAT_PENALTY = _number(
    "repeat_penalty", 1.0, SMALLEST, 100, "penalty for repeating recent tokens; 1 = off"
)
PRESENCE_PENALTY = _number(
    "presence_penalty", 0.0, -100, 100, "subtracted once from recent tokens' logits; 0 = off"
)
FREQUENCY_PENALTY = _number(
    "frequency_penalty", 0.0, -100, 100, "subtracted for each recent occurrence; 0 = off"
)
PENALTY_LAST_N = _whole(
    "penalty_last_n", 64, _LARGEST, "how many recent tokens the penalties cover; 0 = none"
)
USUAL: tuple[SettingSpec[Any], ...] = (
    *(TEMPERATURE, TOP_K, TOP_P, MIN_P),
    *(REPEAT_PENALTY, PRESENCE_PENALTY, FREQUENCY_PENALTY, PENALTY_LAST_N),
)
"""In the order of the help text."""

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
    "top_n_sigma", 0.0, 0, 1e6, "keep logits within N deviations of the top; 0 = off"
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

FURTHER: tuple[SettingSpec[Any], ...] = (
    *(DRY_MULTIPLIER, DRY_BASE, DRY_ALLOWED_LENGTH, DRY_PENALTY_LAST_N, DRY_SEQUENCE_BREAKERS),
    *(TOP_N_SIGMA, TYPICAL_P, XTC_PROBABILITY, XTC_THRESHOLD, DYNATEMP_RANGE, DYNATEMP_EXPONENT),
    *(MIROSTAT, MIROSTAT_TAU, MIROSTAT_ETA, SAMPLERS),
)
"""Settings of samplers that few need, in the order of the help text."""
