"""Where things live, and what the person set. ``LOCALSPEC_HOME`` moves everything at once."""

from __future__ import annotations

import difflib
import functools
import tomllib
from pathlib import Path

from localspec.config.paths import config_dir
from localspec.errors import UsageError

_TABLES = ("keys", "presets")
KNOWN = (
    *("model", "draft", "require_draft", "ctx", "verifier", "drafter", "draft_max"),
    *("gpu_layers", "draft_gpu_layers", "threads", "kv_type", "remember", "offline"),
    *("temperature", "top_k", "top_p", "min_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty", "penalty_last_n"),
    *("seed", "max_tokens", "theme", *_TABLES),
)
"""Names that config.toml may have at its top level."""


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
