"""models.toml: the shipped catalogue and the person's own, read into typed values."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from localspec import config
from localspec.demo import FOLDER
from localspec.errors import UsageError
from localspec.options import MAX_K

EMBEDDED = "embedded:"


@dataclass(frozen=True, slots=True)
class Pair:
    """One entry of the catalogue."""

    name: str
    about: str
    """What it is for, in one line."""
    target: Path
    draft: Path | None
    drafting: str
    """How it is drafted for: ``draft-model`` or ``ngram``."""
    licence: str
    always_draft: int | None
    """Draft this many tokens every round, even where plain decoding would be faster."""
    where: Path
    """The models.toml that it comes from."""

    @property
    def installed(self) -> bool:
        """Whether its files are here."""
        return self.target.is_file() and (self.draft is None or self.draft.is_file())

    @property
    def n_bytes(self) -> int:
        """Size of the files that are here."""
        files = [self.target, *([self.draft] if self.draft else [])]
        return sum(f.stat().st_size for f in files if f.is_file())


def shipped() -> Path:
    """The catalogue that came with localspec: in the wheel, or at the top of a checkout."""
    inside = Path(__file__).parent.parent / "models.toml"
    return inside if inside.is_file() else Path(__file__).parent.parent.parent / "models.toml"


@functools.cache
def catalog() -> dict[str, Pair]:
    """All pairs by name; the person's own file adds and overrides.

    Raises:
        UsageError: a file is not what it should be; the message names file, pair and field.
    """
    pairs = _read(shipped())
    own = config.config_dir() / "models.toml"
    if own.is_file():
        pairs |= _read(own)
    return pairs


def _read(path: Path) -> dict[str, Pair]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return {name: _pair(path, name, table) for name, table in tables.items()}


def _pair(path: Path, name: str, table: object) -> Pair:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name!r} must be a table")
    fields = cast("dict[str, object]", table)

    def text(key: str, default: str | None = None) -> str:
        value = fields.get(key, default)
        if not isinstance(value, str):
            raise UsageError(f"{path}: pair {name!r} needs a text {key!r}")
        return value

    def file(key: str) -> Path | None:
        value = fields.get(key)
        if value is None:
            return None
        name_of = value.get("file") if isinstance(value, dict) else value
        if not isinstance(name_of, str):
            raise UsageError(f"{path}: pair {name!r}, {key!r} needs a text 'file'")
        if name_of.startswith(EMBEDDED):
            return FOLDER / name_of.removeprefix(EMBEDDED)
        return (path.parent / Path(name_of).expanduser()).resolve()

    target = file("target")
    if target is None:
        raise UsageError(f"{path}: pair {name!r} needs a 'target'")
    always = fields.get("always_draft")
    if always is not None and (not isinstance(always, int) or not 0 <= always <= MAX_K):
        raise UsageError(f"{path}: pair {name!r}, 'always_draft' must be between 0 and {MAX_K}")
    return Pair(
        name=name,
        about=text("about", ""),
        target=target,
        draft=file("draft"),
        drafting=text("drafting", "draft-model" if "draft" in fields else "ngram"),
        licence=text("licence", "unknown"),
        always_draft=always,
        where=path,
    )
