"""Where things live, and what the person set. ``LOCALSPEC_HOME`` moves everything at once."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from localspec.config.paths import config_dir
from localspec.errors import UsageError

_LARGEST_TOML = 1 << 20
"""Bytes of a file of settings or of pairs."""


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
