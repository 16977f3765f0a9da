"""The file of an adapter or a control vector, and what names its content.

Such a file is small beside its model and exchanged in place for another of its size, so all of it
is hashed; of models, samples are (`localspec.models.gguf.shards.fingerprint`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import ModelFileError

Stamp = tuple[int, ...]
"""What the file system changes when a file is written or exchanged."""


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """A file as it was when it was read. The thread that computes asks for its stamp alone: its
    digest takes a second for 200 MB on a busy machine.
    """

    path: Path
    digest: str
    stamp: Stamp
    """From before all that was found out about the file."""

    @classmethod
    def read(cls, path: Path) -> AdapterFile:
        """The file as it is.

        Raises:
            ModelFileError: it cannot be read.
        """
        stamp = stamp_of(path)
        return cls(path, digest_of(path), stamp)

    def require_unchanged(self) -> None:
        """Refuse a file that was written or exchanged since.

        Raises:
            ModelFileError: it was, or is gone.
        """
        if stamp_of(self.path) != self.stamp:
            raise ModelFileError(f"{self.path.name} changed while it was loaded; load it again")


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file.

    Raises:
        ModelFileError: there is none.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def digest_of(path: Path) -> str:
    """A hash of all bytes of a file.

    Raises:
        ModelFileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"cannot read {path}: {error.strerror}")
