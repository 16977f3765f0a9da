"""Where things live, and what the person set. ``LOCALSPEC_HOME`` moves everything at once."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from localspec.config.paths import config_dir
from localspec.errors import UsageError


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
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
