"""The settings of the panel and of `/set`: rows of `localspec.core.settings_schema`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.core import sampler_settings
from localspec.core.errors import UsageError
from localspec.core.options import Options
from localspec.core.sampling_params import Sampling
from localspec.core.setting_spec import AUTO, Kind, Scope, SettingSpec, Value, names_of
from localspec.core.settings_schema import SETTINGS

if TYPE_CHECKING:
    from tui.session.settings import Settings


class SettingError(ValueError):
    """The name of a setting that does not exist; the text is for the user."""


_ORDER = (Scope.SAMPLING, Scope.REQUEST, Scope.LOAD)
_FURTHER = {spec.name for spec in sampler_settings.FURTHER}
_USUAL = tuple(
    spec
    for scope in _ORDER
    for spec in SETTINGS
    if spec.scope is scope and spec.in_panel and spec.name not in _FURTHER
)
FIELDS: tuple[SettingSpec[Any], ...] = (*_USUAL, *sampler_settings.FURTHER)
"""Settings of the scope LOAD need the model to be loaded again, the others count from the next
reply. Further samplers, which few need, come last."""
BY_NAME = {field.name: field for field in FIELDS}


def suggestions(field: SettingSpec[Any]) -> tuple[str, ...]:
    """Values that are completed while a field is typed in."""
    return (AUTO, *field.choices) if field.auto and field.choices else field.choices


@dataclass(frozen=True, slots=True)
class Change:
    """The settings after a change."""

    sampling: Sampling
    seed: int | None
    max_tokens: int | None
    options: Mapping[str, object]
    """Fields of `Options` with new values."""


def values(settings: Settings, options: Options | None) -> dict[str, Value]:
    """Every setting and its value; those of the scope LOAD only where the options are known."""
    found: dict[str, Value] = {}
    for field in FIELDS:
        if field.scope is Scope.LOAD:
            if options is not None:
                value = getattr(options, field.python_name)
                found[field.name] = ",".join(value) if isinstance(value, tuple) else value
        elif hasattr(settings.sampling, field.name):
            found[field.name] = getattr(settings.sampling, field.name)
        else:
            found[field.name] = getattr(settings, field.name)
    return found


def defaults() -> dict[str, Value]:
    """Every setting with its default."""
    from tui.session.settings import Settings

    return values(Settings(Sampling()), Options())


def text_of(value: Value) -> str:
    """A value as it is typed."""
    if value is None:
        return AUTO
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return str(value)


def rows(settings: Settings, options: Options | None) -> list[tuple[str, str]]:
    """Every setting and its value, as texts."""
    again = "  (another one loads the model again)"
    return [
        (name, text_of(value) + (again if BY_NAME[name].scope is Scope.LOAD else ""))
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
    """The settings with new values by name.

    Raises:
        UsageError: a value is refused, or the model is not loaded yet.
    """
    known = {f.name for f in dataclasses.fields(Sampling)}
    sampling = {name: value for name, value in wanted.items() if name in known}
    changed: dict[str, object] = {}
    for name, value in wanted.items():
        field = BY_NAME.get(name)
        if field is None or field.scope is not Scope.LOAD:
            continue
        if options is None:
            raise UsageError("wait until the model is loaded")
        is_names = field.kind is Kind.NAMES and isinstance(value, str)
        new = names_of(str(value)) if is_names else value
        if new != getattr(options, field.python_name):
            changed[field.python_name] = new
    if options is not None:
        dataclasses.replace(options, **changed)  # type: ignore[arg-type] # checks the values
    seed, most = wanted.get("seed", settings.seed), wanted.get("max_tokens", settings.max_tokens)
    assert seed is None or isinstance(seed, int)
    assert most is None or isinstance(most, int)
    new_sampling = dataclasses.replace(settings.sampling, **sampling)  # type: ignore[arg-type]
    return Change(new_sampling, seed, most, changed)
