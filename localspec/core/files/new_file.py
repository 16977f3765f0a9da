"""Where a new model file may be written: never over a file it is made from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from localspec.core.errors import UsageError


def require_free(where: Path, sources: Iterable[Path], *, replace: bool) -> None:
    """Check that ``where`` can be written without losing a file.

    ``sources`` are the files that the new one is made from; they are compared by inode, so links
    to them are refused too. ``replace`` allows any other existing file to be overwritten.

    Raises:
        UsageError: it is one of the sources, an existing file, or a folder, or its folder is
            missing.
    """
    if not where.parent.is_dir():
        raise UsageError(f"there is no folder {where.parent} to write {where.name} to")
    if not where.exists():
        return
    if any(source.exists() and where.samefile(source) for source in sources):
        raise UsageError(f"{where} is the file to read from; give another name with --output")
    if where.is_dir():
        raise UsageError(f"{where} is a folder; give the name of a file with --output")
    if not replace:
        raise UsageError(
            f"{where} exists already; give another name with --output, or --force to overwrite it"
        )


def unfinished(where: Path) -> Path:
    """An unused name in the folder of ``where``, for the file while it is incomplete."""
    return where.with_name(f".{where.name}.{os.urandom(4).hex()}.part")
