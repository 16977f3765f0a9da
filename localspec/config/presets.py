"""Presets: named sets of a system prompt and settings, tables ``[presets.NAME]`` of config.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.config import allow_tools
from localspec.config import settings as config_settings
from localspec.config.edit import Place
from localspec.core.errors import UsageError
from localspec.core.setting_spec import Value
from localspec.core.settings_schema import SETTINGS, TOOLS

KEYS = {spec.name: spec for spec in SETTINGS if spec.in_presets}
"""The settings that a preset may hold."""
NAME = re.compile(r"[\w-]{1,40}")


@dataclass(frozen=True, slots=True)
class Preset:
    """One table; settings that it leaves out stay as they are."""

    name: str
    values: Mapping[str, Value]

    @property
    def system(self) -> str | None:
        """Its system prompt, if it has one."""
        return self.text("system")

    def text(self, key: str) -> str | None:
        """The value of a setting, if it is a text."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    @property
    def row(self) -> tuple[str, str, str]:
        """Its model, its tools, and what else it sets; the first line of its system prompt last."""
        others = [
            f"{k} {v}" for k, v in self.values.items() if k not in ("system", "model", TOOLS.name)
        ]
        first = next((line for line in (self.system or "").splitlines() if line.strip()), "")
        told = ", ".join([*others, *([f'"{first.strip()}"'] if first else [])])
        return self.text("model") or "", self.text(TOOLS.name) or "", told

    @property
    def about(self) -> str:
        """Its settings and system prompt, in one line."""
        settings = [f"{k} {v}" for k, v in self.values.items() if k != "system"]
        system = " ".join((self.system or "").split())
        return ", ".join([*settings, *([f'"{system}"'] if system else [])])


def presets() -> dict[str, Preset]:
    """All presets, in the order of the file.

    Raises:
        UsageError: a setting of a preset is unknown or refused; the message names it.
    """
    tables = config_settings.settings().get("presets", {})
    where = config_settings.place("presets")
    if not isinstance(tables, dict):
        raise UsageError(f'{where} must be tables, as in [presets.brief] and system = "Be brief."')
    found = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{where}: {name} must be a table, as in [presets.{name}]")
        for key, value in table.items():
            _require(name, key, value)
        found[name] = Preset(name, table)
    return found


def _require(preset: str, key: str, value: object) -> None:
    if key not in KEYS:
        import difflib

        close = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(KEYS)}"
        raise UsageError(
            f"preset {preset} in {config_settings.file()} has an unknown setting {key!r}; {hint}"
        )
    try:
        KEYS[key].check(value)
        if key == TOOLS.name:
            allow_tools.offered({key: value})
    except UsageError as error:
        raise UsageError(f"{error} (set by {place(preset, key)})") from None


def place(preset: str, key: str) -> str:
    """A setting of a preset, as errors name it."""
    return f"{key} of preset {preset} in {config_settings.file()}"


def called(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UsageError: there is none, or see `presets`.
    """
    found = presets()
    if name in found:
        return found[name]
    known = f"known are {', '.join(found)}" if found else "config.toml has no [presets.NAME]"
    raise UsageError(f"no preset called {name!r}; {known}")


def to_save(name: str, values: Mapping[str, Value]) -> dict[Place, Value]:
    """Changes for `localspec.config.edit.save`; None removes a setting.

    Raises:
        UsageError: the name is not made of letters, digits, - and _.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name for a preset; use letters, digits, - and _")
    return {("presets", name, key): value for key, value in values.items()}
