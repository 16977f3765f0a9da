"""models.toml: the shipped catalogue and the person's own, as typed values."""

from __future__ import annotations

import functools
from pathlib import Path

from localspec.config import paths
from localspec.models.catalog.pair import Pair


def shipped() -> Path:
    """The catalogue that came with localspec: in the wheel, or at the top of a checkout."""
    inside = Path(__file__).parents[2] / "models.toml"
    return inside if inside.is_file() else Path(__file__).parents[3] / "models.toml"


@functools.cache
def catalog() -> dict[str, Pair]:
    """All pairs by name; the person's own file adds pairs and overrides fields.

    Raises:
        UsageError: a file is not what it should be; the message names file, line and field.
    """
    from localspec.models.catalog.toml_file import Document

    ours, own = Document.read(shipped()), paths.config_dir() / "models.toml"
    pairs = {name: ours.pair(name) for name in ours.names}
    if own.is_file():
        theirs = Document.read(own)
        pairs |= {name: theirs.pair(name, ours) for name in theirs.names}
    return pairs


def from_anywhere(model: str | None) -> str | None:
    """The name of a model as it can be asked for in any folder: paths are made whole."""
    if not model:
        return None
    path = Path(model).expanduser()
    is_path = path.is_file() or (path.is_dir() and model not in catalog())
    return str(path.resolve()) if is_path else model
