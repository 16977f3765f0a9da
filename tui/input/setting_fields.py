"""Settings by name: what `/set`, the panel and presets list and change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.drafter_registry import NAMES as DRAFTERS
from localspec.core.sampling_params import Sampling
from localspec.errors import UsageError
from localspec.loading.options import VERIFIERS, Options

if TYPE_CHECKING:
    from localspec.config.edit import Value
    from tui.session.ports import Settings

AUTO = "auto"
"""Leaves a value to localspec; as a seed, a new one each time."""


class SettingError(ValueError):
    """A setting that cannot be meant; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting, under the name that it has in config.toml."""

    name: str
    help: str
    read: Callable[[str], Value]
    wants: str
    """What to say where the text cannot be read."""
    option: str | None = None
    """Of `Options`, if it means that the model is loaded again."""
    choices: tuple[str, ...] = ()

    def value(self, text: str) -> Value:
        """What a text means; None is automatic.

        Raises:
            SettingError: nothing.
        """
        try:
            return self.read(text.strip())
        except ValueError:
            raise SettingError(f"{self.name} needs {self.wants}, not {text.strip()!r}") from None


def _whole_or_auto(text: str) -> int | None:
    return None if text in {AUTO, ""} else int(text)


def _whole_from_1(text: str) -> int | None:
    value = _whole_or_auto(text)
    if value is not None and value < 1:
        raise ValueError
    return value


def _seed(text: str) -> int | None:
    value = _whole_or_auto(text)
    if value is not None and not 0 <= value < 10**18:
        raise ValueError
    return value


def _names(text: str) -> str | None:
    parts = [part.strip() for part in text.split(",")]
    return None if text in {AUTO, ""} else ",".join(parts)


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError
        return text

    return read


_NUMBER, _WHOLE, _AUTO_WHOLE = "a number", "a whole number", "a whole number or auto"
FIELDS = (
    Field("temperature", "0 is greedy", float, _NUMBER),
    Field("top_k", "the likeliest tokens; 0 keeps all", int, _WHOLE),
    Field("top_p", "the likeliest with so much probability; 1 keeps all", float, _NUMBER),
    Field("min_p", "at least so much of the best one's; 0 keeps all", float, _NUMBER),
    Field("repeat_penalty", "divides what was said lately; 1 is off", float, _NUMBER),
    Field("presence_penalty", "once for a token said lately; 0 is off", float, _NUMBER),
    Field("frequency_penalty", "each time it was said; 0 is off", float, _NUMBER),
    Field("penalty_last_n", "tokens that count as lately", int, _WHOLE),
    Field("seed", "same seed, same text; auto is a new one each time", _seed, _AUTO_WHOLE),
    Field("max_tokens", "longest reply", _whole_from_1, "a whole number from 1, or auto"),
    Field(
        "verifier",
        "match is the same token for token, rejection in distribution",
        _one_of(*VERIFIERS),
        " or ".join(VERIFIERS),
        "verifier",
        VERIFIERS,
    ),
    Field(
        "drafter",
        "names with commas, the preferred first; off is plain decoding",
        _names,
        "names or auto",
        "drafter",
        (AUTO, *DRAFTERS),
    ),
    Field("draft_max", "K; auto is what pays", _whole_or_auto, _AUTO_WHOLE, "draft_max"),
    Field("ctx", "context in tokens", _whole_or_auto, _AUTO_WHOLE, "context"),
    Field("threads", "auto is measured", _whole_or_auto, _AUTO_WHOLE, "threads"),
)
"""Those with an option need the model to be loaded again, the others count from the next reply."""
BY_NAME = {field.name: field for field in FIELDS}


@dataclass(frozen=True, slots=True)
class Change:
    """Settings that are other than they were."""

    sampling: Sampling
    seed: int | None
    max_tokens: int | None
    options: Mapping[str, object]
    """Fields of `Options` that change."""


def values(settings: Settings, options: Options | None) -> dict[str, Value]:
    """Every setting and what it is now; those of the model only where its options are known."""
    found: dict[str, Value] = {}
    for field in FIELDS:
        if field.option is not None:
            if options is not None:
                value = getattr(options, field.option)
                found[field.name] = ",".join(value) if isinstance(value, tuple) else value
        elif hasattr(settings.sampling, field.name):
            found[field.name] = getattr(settings.sampling, field.name)
        else:
            found[field.name] = getattr(settings, field.name)
    return found


def text_of(value: Value) -> str:
    """A value as it is typed."""
    if value is None:
        return AUTO
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return str(value)


def rows(settings: Settings, options: Options | None) -> list[tuple[str, str]]:
    """Every setting and its value, for people."""
    again = "  (another one loads the model again)"
    return [
        (name, text_of(value) + (again if BY_NAME[name].option is not None else ""))
        for name, value in values(settings, options).items()
    ]


def read(text: str) -> tuple[str, str]:
    """Name and value of ``name value``; the value may be missing.

    Raises:
        SettingError: there is no such setting.
    """
    name, _, value = text.replace("=", " ").strip().partition(" ")
    name, value = name.lower().replace("-", "_"), value.strip()
    if name not in BY_NAME:
        raise SettingError(f"there is no setting {name!r}; /set lists them")
    return name, value


def change(wanted: Mapping[str, Value], settings: Settings, options: Options | None) -> Change:
    """What values by name make of the settings.

    Raises:
        SettingError, UsageError: values that cannot be meant.
    """
    known = {f.name for f in dataclasses.fields(Sampling)}
    sampling = {name: value for name, value in wanted.items() if name in known}
    changed: dict[str, object] = {}
    for name, value in wanted.items():
        option = BY_NAME[name].option if name in BY_NAME else None
        if option is None:
            continue
        if options is None:
            raise UsageError("wait until the model is loaded")
        new = tuple(value.split(",")) if option == "drafter" and isinstance(value, str) else value
        if new != getattr(options, option):
            changed[option] = new
    if options is not None:
        dataclasses.replace(options, **changed)  # type: ignore[arg-type] # checks the values
    seed, most = wanted.get("seed", settings.seed), wanted.get("max_tokens", settings.max_tokens)
    assert seed is None or isinstance(seed, int)
    assert most is None or isinstance(most, int)
    new_sampling = dataclasses.replace(settings.sampling, **sampling)  # type: ignore[arg-type]
    return Change(new_sampling, seed, most, changed)
