"""Whether a file system has holes in files, and keeps them where the file is mapped and read."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

TRIAL = 16 << 20
"""Bytes of the hole that is tried."""


def keeps_holes(folder: Path) -> bool:
    """Whether files in a folder may have holes that take no room, also after they were read.

    A file system in memory fills them when they are read.

    Raises:
        OSError: no file can be written there.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.seek(TRIAL)
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
        if _taken(file.fileno()) > TRIAL // 2:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for at in range(0, TRIAL // 4, mmap.PAGESIZE):
                mapped[at]
        return _taken(file.fileno()) < TRIAL // 8


def _taken(handle: int) -> int:
    return os.fstat(handle).st_blocks * 512
