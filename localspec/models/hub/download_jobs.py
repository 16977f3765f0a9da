"""A file to have, and how far it is."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Literal, Protocol

from localspec.models.hub.file_names import Entry
from localspec.models.hub.wait_notices import WaitNotices, wait_text

State = Literal["queued", "waiting", "checking", "fetching", "done"]


@dataclass(frozen=True, slots=True)
class DownloadJob:
    """One file to have."""

    repo: str
    commit: str
    entry: Entry
    branch: str | None = None
    """The branch that was asked, to be remembered as being at this commit."""

    @property
    def name(self) -> str:
        """The file's name, without folders."""
        return self.entry.path.rsplit("/", 1)[-1]


@dataclass(slots=True)
class DownloadProgress:
    """How far a file is; written by the threads that fetch, read by whoever shows it."""

    name: str
    size: int
    done: int = 0
    """Bytes that are here."""
    fetched: int = 0
    """Bytes that came over the line in this pull."""
    state: State = "queued"
    pause: str = ""
    """Why nothing comes, and for how long still; empty while something does."""


class ShownWaits(WaitNotices):
    """WaitNotices that are shown in the progress of a file."""

    def __init__(self, progress: DownloadProgress, cancel: threading.Event) -> None:
        super().__init__(cancel)
        self._progress = progress

    def show(self, why: str, left: float) -> None:
        """Put it into words."""
        self._progress.pause = wait_text(why, left)

    def clear(self) -> None:
        """Nothing is waited for any more."""
        self._progress.pause = ""


class Digest(Protocol):
    """What hashlib makes."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def digest_of(entry: Entry) -> Digest:
    """sha256 of a large file; git's name for the content of a small one."""
    if entry.sha256 is not None:
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(f"blob {entry.size}\0".encode())
    return digest
