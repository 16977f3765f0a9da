"""Reading the user's config.toml."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localspec.core.errors import UsageError
from localspec.core.files import closed
from localspec.core.files.paths import config_dir
from localspec.core.setting_spec import SettingSpec, Value
from localspec.core.settings_schema import SETTINGS

_LARGEST_TOML = 1 << 20
"""Largest size in bytes of config.toml and models.toml."""
_TABLES = ("keys", "presets")
KNOWN = (*(spec.name for spec in SETTINGS if spec.in_config), *_TABLES)
"""Names that config.toml may have at its top level."""


def file() -> Path:
    """The place of config.toml."""
    return config_dir() / "config.toml"


@functools.cache
def settings() -> dict[str, object]:
    """The user's config.toml: the names of `localspec.core.settings_schema`, and two tables.

    Raises:
        UsageError: it is not TOML; the message names the place.
    """
    return read(file())


def place(name: str) -> str:
    """A setting of config.toml, as errors name it."""
    return f"{name} in {file()}"


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Have an error about a setting of config.toml name its place."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error} (set by {place(name)})") from None


def value(spec: SettingSpec[Any]) -> Value:
    """What config.toml sets, else the default.

    Raises:
        UsageError: it is refused, or the file is not TOML; the message names the place.
    """
    found = settings()
    if spec.name not in found:
        default: Value = spec.default
        return default
    with named(spec.name):
        return spec.check(found[spec.name])


def unknown() -> list[str]:
    """One line for each name of config.toml that is not a setting, with the closest one.

    Raises:
        UsageError: the file is not TOML; the message names the place.
    """
    lines = []
    for name in settings():
        if name not in KNOWN:
            import difflib

            close = difflib.get_close_matches(name, KNOWN, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            lines.append(f"unknown setting {name!r} has no effect{meant}")
    return lines


def read(path: Path) -> dict[str, object]:
    """The tables of a TOML file; empty if the file does not exist.

    Raises:
        UsageError: it cannot be read, or is not TOML; the message names the place.
    """
    try:
        return parse_toml(path, read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path, content: Callable[[Path, int], bytes] = closed.content) -> str:
    """The text of a TOML file that users write, had by ``content``.

    Raises:
        UsageError: it is larger than 1 MB, or not UTF-8.
        OSError: it cannot be read, or somebody else could have written it.
    """
    raw = content(path, _LARGEST_TOML + 1)
    if len(raw) > _LARGEST_TOML:
        raise UsageError(f"{path} is larger than {_LARGEST_TOML >> 20} MB; it cannot be right")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def parse_toml(path: Path, text: str) -> dict[str, object]:
    """The tables of a TOML text.

    Raises:
        UsageError: it is not valid TOML; the message names the place.
    """
    import tomllib

    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is not valid TOML: nested too deeply") from None
