"""models.toml: the shipped catalogue and the user's own, as typed values."""

from __future__ import annotations

import functools
from pathlib import Path

from localspec.files import paths
from localspec.models.catalog.pair import Pair


def shipped() -> Path:
    """Path of the catalogue that came with localspec: in the wheel, or at the top of a checkout."""
    inside = Path(__file__).parents[2] / "models.toml"
    return inside if inside.is_file() else Path(__file__).parents[3] / "models.toml"


@functools.cache
def catalog() -> dict[str, Pair]:
    """All pairs by name; the user's own file adds pairs and overrides fields.

    Raises:
        UsageError: a file is invalid; the message names file, line and field.
    """
    from localspec.models.catalog.toml_file import Document

    ours, own = Document.read(shipped()), paths.config_dir() / "models.toml"
    pairs = {name: ours.pair(name) for name in ours.names}
    if own.is_file():
        theirs = Document.read(own)
        pairs |= {name: theirs.pair(name, ours) for name in theirs.names}
    return pairs
