"""Reading of files whose names come from others."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def content(path: Path, most: int, *, links: bool = True) -> bytes:
    """The first ``most`` bytes of a file; without ``links`` it must be no link itself.

    Raises:
        OSError: it cannot be read, or is no regular file: a pipe would wait for its other end.
        ValueError: no file can have this name.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
