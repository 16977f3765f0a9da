"""Checks before files are used: that one is regular, that none is lost, that holes are kept."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from localspec.core.errors import UsageError

TRIAL = 16 << 20
"""Bytes of the hole that is tried."""
_PART = 1 << 20


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


@contextlib.contextmanager
def opened(path: Path, *, links: bool = True) -> Iterator[BinaryIO]:
    """A file to read; without ``links`` it must be no link itself.

    Raises:
        OSError: it cannot be read, or is no regular file: a pipe would wait for its other end.
    """
    require_possible(path)
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        require_regular(descriptor, str(path))
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def content(path: Path, most: int, *, links: bool = True) -> bytes:
    """The first ``most`` bytes of a file.

    Raises:
        OSError: see `opened`.
    """
    with opened(path, links=links) as file:
        return read(file, most)


def read(file: BinaryIO, most: int) -> bytes:
    """The first ``most`` bytes of an opened file.

    Raises:
        OSError: it cannot be read.
    """
    found, left = bytearray(), most
    while part := file.read(min(left, _PART)):  # as many bytes are taken as are asked for
        found += part
        left -= len(part)
    return bytes(found)


def possible(name: str | Path) -> bool:
    """Whether a file can have a name, and a process a text as its argument. A NUL, and half a
    character, make the functions of the system raise what is no OSError.
    """
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def require_possible(path: Path) -> None:
    """Refuse a name that no file can have.

    Raises:
        OSError: it is one.
    """
    if not possible(path):
        raise OSError(errno.EINVAL, "no file can have this name", str(path))


def require_regular(descriptor: int, name: str) -> None:
    """Refuse what is no regular file, as a pipe or a device.

    Raises:
        OSError: it is none.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", name)


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
