"""Values of a download: the file to fetch, its progress, rate and hash, and notices about waits."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal, Protocol

from localspec.models.catalog.file_names import RepoFile

State = Literal["queued", "waiting", "checking", "fetching", "done"]
_WINDOW = 5.0
"""Seconds that a rate is averaged over."""
_SHORTEST = 0.5
"""Seconds before a rate is known."""


class WaitNotices:
    """Receives notices about waits; setting ``cancel`` ends a wait. This class shows nothing."""

    def __init__(self, cancel: threading.Event | None = None) -> None:
        self.cancel = cancel or threading.Event()

    def show(self, why: str, left: float) -> None:
        """A wait goes on: called about once a second; ``left`` in seconds."""

    def clear(self) -> None:
        """The wait is over."""


def wait_text(why: str, left: float) -> str:
    """One line about a wait."""
    return f"{why}; again in {max(1, round(left))} s"


@dataclass(frozen=True, slots=True)
class DownloadJob:
    """One file to fetch."""

    repo: str
    commit: str
    entry: RepoFile
    branch: str | None = None
    """The branch that was asked for; the cache records that it is at this commit."""

    @property
    def name(self) -> str:
        """Name of the file, without folders."""
        return self.entry.path.rsplit("/", 1)[-1]


@dataclass(slots=True)
class DownloadProgress:
    """Progress of one file; written by the threads that fetch, read by the display."""

    name: str
    size: int
    done: int = 0
    """Bytes on disk."""
    fetched: int = 0
    """Bytes received in this pull."""
    state: State = "queued"
    pause: str = ""
    """Why nothing arrives and for how much longer; empty while bytes arrive."""


class Rate:
    """Bytes a second, from the number of bytes received so far."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def now(self, arrived: int) -> float | None:
        """Bytes a second over the last seconds; None while unknown or where nothing arrives."""
        now = time.monotonic()
        self._seen.append((now, arrived))
        while now - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        seconds, came = now - self._seen[0][0], arrived - self._seen[0][1]
        return None if seconds < _SHORTEST or came <= 0 else came / seconds


class ShownWaits(WaitNotices):
    """Shows waits in the progress of a file."""

    def __init__(self, progress: DownloadProgress, cancel: threading.Event) -> None:
        super().__init__(cancel)
        self._progress = progress

    def show(self, why: str, left: float) -> None:
        """Show a wait."""
        self._progress.pause = wait_text(why, left)

    def clear(self) -> None:
        """The wait is over."""
        self._progress.pause = ""


class Digest(Protocol):
    """A hash object of `hashlib`."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def digest_of(entry: RepoFile) -> Digest:
    """A new hash object: sha256 for a large file, git's blob hash for a small one."""
    if entry.sha256 is not None:
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(f"blob {entry.size}\0".encode())
    return digest
