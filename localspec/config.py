"""Where things live, and what the person set. ``LOCALSPEC_HOME`` moves everything at once."""

from __future__ import annotations

import functools
import os
import tomllib
from pathlib import Path

import platformdirs

from localspec.errors import LocalspecError, UsageError
from localspec.private import require_own

APP = "localspec"
_LARGEST_TOML = 1 << 20
"""Bytes of a file of settings or of pairs."""


def _home(part: str, default: str) -> Path:
    override = os.environ.get("LOCALSPEC_HOME")
    if not override:
        return Path(default)
    try:
        return Path(override).expanduser() / part
    except RuntimeError:
        raise UsageError(f"LOCALSPEC_HOME is {override}, and there is no such user") from None


def expand(name: str) -> Path:
    """A path as typed; ``~`` is the person's home, that of an unknown user stays what it is."""
    try:
        return Path(name).expanduser()
    except (RuntimeError, ValueError):  # no such user, or a name that no user can have
        return Path(name)


def config_dir() -> Path:
    """The person's settings and their own models.toml."""
    return _home("config", platformdirs.user_config_dir(APP, appauthor=False))


def data_dir() -> Path:
    """What must not be lost: chats."""
    return _home("data", platformdirs.user_data_dir(APP, appauthor=False))


def state_dir() -> Path:
    """Logs."""
    return _home("state", platformdirs.user_state_dir(APP, appauthor=False))


def cache_dir() -> Path:
    """What can be made again."""
    return _home("cache", platformdirs.user_cache_dir(APP, appauthor=False))


def make(directory: Path) -> Path:
    """Create a directory of ours, readable by its owner only.

    Raises:
        LocalspecError: it cannot be made, or others may write to it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(directory)
    except OSError as error:
        raise LocalspecError(
            f"cannot make {directory}: {error.strerror}; set LOCALSPEC_HOME to a writable folder"
        ) from None
    return directory


@functools.cache
def settings() -> dict[str, object]:
    """The person's config.toml: names as the long flags, with underscores.

    Raises:
        UsageError: it is not TOML; the message names the place.
    """
    return read(config_dir() / "config.toml")


def read(path: Path) -> dict[str, object]:
    """The tables of a TOML file; none where there is no file.

    Raises:
        UsageError: it cannot be read, or is not TOML; the message names the place.
    """
    try:
        return parse_toml(path, read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    """The text of a file that people write by hand.

    Raises:
        UsageError: it is larger than any of them, or not UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(_LARGEST_TOML + 1)
    if len(raw) > _LARGEST_TOML:
        raise UsageError(f"{path} is larger than {_LARGEST_TOML >> 20} MB; it cannot be right")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def parse_toml(path: Path, text: str) -> dict[str, object]:
    """The tables of a TOML text.

    Raises:
        UsageError: it is none; the message names the place.
    """
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is not valid TOML: nested too deeply") from None
