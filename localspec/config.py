"""Where things live, and what the person set. ``LOCALSPEC_HOME`` moves everything at once."""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from pathlib import Path

import platformdirs

from localspec.errors import LocalspecError, UsageError

APP = "localspec"
_TABLES = ("keys", "presets")
KNOWN = (
    *("model", "draft", "require_draft", "ctx", "verifier", "drafter", "draft_max"),
    *("gpu_layers", "draft_gpu_layers", "threads", "kv_type", "remember", "offline"),
    *("temperature", "top_k", "top_p", "min_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty", "penalty_last_n"),
    *("seed", "max_tokens", "theme", *_TABLES),
)
"""Names that config.toml may have at its top level."""


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
    except RuntimeError:
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
        LocalspecError: it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def unknown() -> list[str]:
    """One line for each name of config.toml that nothing reads, with the name that may be meant.

    Raises:
        UsageError: the file is not TOML; the message names the place.
    """
    lines = []
    for name in settings():
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            lines.append(f"unknown setting {name!r} has no effect{meant}")
    return lines


def read(path: Path) -> dict[str, object]:
    """The tables of a TOML file; none where there is no file.

    Raises:
        UsageError: it cannot be read, or is not TOML; the message names the place.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
