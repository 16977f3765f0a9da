"""Presets: named sets of a system prompt and settings, tables ``[presets.NAME]`` of config.toml."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.config import paths
from localspec.config import settings as config_settings
from localspec.config.edit import Place, Value
from localspec.errors import UsageError

_TEXT: tuple[tuple[type, ...], str] = (str,), "a text"
_NUMBER: tuple[tuple[type, ...], str] = (int, float), "a number"
_WHOLE: tuple[tuple[type, ...], str] = (int,), "a whole number"
_OR_AUTO: tuple[tuple[type, ...], str] = (int, str), "a whole number or auto"
KEYS = {
    **dict.fromkeys(("system", "model", "draft", "verifier", "drafter", "kv_type"), _TEXT),
    **dict.fromkeys(("temperature", "top_p", "min_p"), _NUMBER),
    **dict.fromkeys(("repeat_penalty", "presence_penalty", "frequency_penalty"), _NUMBER),
    **dict.fromkeys(("top_k", "penalty_last_n", "seed", "max_tokens", "ctx", "threads"), _WHOLE),
    **dict.fromkeys(("draft_max", "gpu_layers", "draft_gpu_layers"), _OR_AUTO),
}
"""What a preset may hold: the system prompt, and settings by the names of their flags."""
NAME = re.compile(r"[\w-]{1,40}")


@dataclass(frozen=True, slots=True)
class Preset:
    """One table; what it leaves out stays as it is."""

    name: str
    values: Mapping[str, Value]

    @property
    def system(self) -> str | None:
        """Its system prompt, if it has one."""
        return self.text("system")

    def text(self, key: str) -> str | None:
        """A text of it."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    @property
    def about(self) -> str:
        """What it holds, in one line."""
        settings = [f"{k} {v}" for k, v in self.values.items() if k != "system"]
        said = " ".join((self.system or "").split())
        return ", ".join([*settings, *([f'"{said}"'] if said else [])])


def presets() -> dict[str, Preset]:
    """All of them, in the order of the file.

    Raises:
        UsageError: one is not what it should be; the message names it.
    """
    tables = config_settings.settings().get("presets", {})
    where = f"presets in {paths.config_dir() / 'config.toml'}"
    if not isinstance(tables, dict):
        raise UsageError(f'{where} must be tables, as in [presets.brief] and system = "Be brief."')
    found = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{where}: {name} must be a table, as in [presets.{name}]")
        for key, value in table.items():
            _require(key, value, f"{where}: {name}")
        found[name] = Preset(name, table)
    return found


def _require(key: str, value: object, where: str) -> None:
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(KEYS)}"
        raise UsageError(f"{where} has an unknown {key!r}; {hint}")
    types, named = KEYS[key]
    is_word = isinstance(value, str) and types is _OR_AUTO[0] and value != "auto"
    if type(value) not in types or is_word:
        raise UsageError(f"{where}: {key} must be {named}")


def called(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UsageError: there is none, or see `presets`.
    """
    found = presets()
    if name in found:
        return found[name]
    there = f"there are {', '.join(found)}" if found else "config.toml has none, as [presets.NAME]"
    raise UsageError(f"there is no preset {name!r}; {there}")


def to_save(name: str, values: Mapping[str, Value]) -> dict[Place, Value]:
    """What `localspec.config.edit.save` is to write; None takes a value out.

    Raises:
        UsageError: a name that a person could not type.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a preset; use letters, digits, - and _")
    return {("presets", name, key): value for key, value in values.items()}
