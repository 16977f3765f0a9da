"""Files that are whole or absent, and that only their owner can read, from their first byte on.

The content goes into a new file in the same folder, is synced to the disk, and replaces the old
file in one step. A failure leaves the old file and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from localspec.core.files import checked


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o600, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write; it becomes ``path`` when the block ends, unless that raises.

    Without ``sync`` a power failure may leave a damaged file: for what is checked when it is read
    and can be made again.

    Raises:
        OSError: it cannot be written; what was at ``path`` is there still.
    """
    handle, part = _part(path)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if mode != 0o600:
            part.chmod(mode)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def replace(path: Path, parts: Iterable[bytes], *, mode: int = 0o600, sync: bool = True) -> None:
    """Write a file in place of what is at ``path``; ``sync`` as in `replacing`.

    Raises:
        OSError: see `replacing`.
    """
    with replacing(path, mode=mode, sync=sync) as file:
        for part in parts:
            file.write(part)


def replace_shared(path: Path, text: str) -> None:
    """Write a small UTF-8 file that other programs read too: permissions follow the umask, and the
    file is not synced, since its loss after a crash costs little.

    Raises:
        OSError: it cannot be written; what was at ``path`` is there still.
    """
    part = path.with_name(f".{path.name[:40]}-{os.urandom(4).hex()}.tmp")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _part(path: Path) -> tuple[int, Path]:
    """A new file next to ``path``: its descriptor and its place."""
    checked.require_possible(path)
    import tempfile  # here: it is slow to import, and most commands write no file

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-", suffix=".part")
    return handle, Path(name)


def create(path: Path, data: bytes) -> None:
    """Write a file where there is none.

    Raises:
        FileExistsError: there is one; it stays as it is.
        OSError: it cannot be written; nothing is left.
    """
    checked.require_possible(path)
    if path.is_symlink() or path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    handle, part = _part(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, path)  # which, unlike a rename, never takes the place of another file
        except FileExistsError:
            raise
        except OSError:  # a file system without links; the check above has to do
            part.replace(path)
            return
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
