"""Downloads that continue where they stopped, verified, and put where everybody looks.

huggingface_hub starts a file again after an interruption; with gigabytes over a home line that is
not good enough. Here bytes go into a partial file that outlives the process, under the hash that
they must have in the end. Only a file with that hash becomes part of the Hugging Face cache, in one
rename; from there on it is like any that huggingface_hub or llama.cpp fetched.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import filelock
import httpx2
from huggingface_hub import get_session, hf_raise_for_status
from huggingface_hub.errors import OfflineModeIsEnabled

from localspec.errors import Interrupted, LocalspecError, ModelFileError
from localspec.models.hub import api, hf_cache
from localspec.models.hub.file_names import Entry

_BLOCK = 1 << 20
_LOCK_LOOK = 0.2
"""Seconds between looks at a lock that another pull holds."""
_SPARE = 64 << 20
"""Bytes of disk that are left alone."""

State = Literal["queued", "waiting", "checking", "fetching", "done"]


@dataclass(frozen=True, slots=True)
class Job:
    """One file to have."""

    repo: str
    commit: str
    entry: Entry
    branch: str | None = None
    """The branch that was asked, to be remembered as being at this commit."""


@dataclass(slots=True)
class Progress:
    """How far a file is; written by the thread that fetches, read by whoever shows it."""

    name: str
    size: int
    done: int = 0
    """Bytes that are here."""
    fetched: int = 0
    """Bytes that came over the line in this pull."""
    state: State = "queued"


def obtain(job: Job, progress: Progress, cancel: threading.Event) -> Path:
    """Have a file in the cache, whole; returns where it is.

    Raises:
        ModelFileError: what the Hub serves is not what it promised.
        LocalspecError: no room, no right to write, or see `localspec.models.hub.api`.
        Interrupted: ``cancel`` was set. What has arrived is kept.
    """
    entry = job.entry
    pointer = hf_cache.find_file(job.repo, entry.path, job.commit)
    if pointer is not None and is_whole(pointer, entry, progress, cancel):
        progress.state = "done"
        with contextlib.suppress(OSError):  # a cache that is read-only still serves what it holds
            _remember(job)
        return pointer
    with _writing(entry):
        part = hf_cache.partial(job.repo, entry.etag)
        part.parent.mkdir(parents=True, exist_ok=True)
        # A repository without this folder counts as damaged for huggingface_hub.
        (part.parent.parent / "snapshots").mkdir(exist_ok=True)
        with _alone(job, progress, cancel):
            blob = part.with_name(entry.etag)
            whole = blob.is_file() and is_whole(blob, entry, progress, cancel)
            if not whole:
                _collect(job, part, progress, cancel)
            placed = hf_cache.place(
                job.repo, job.commit, entry.path, entry.etag, None if whole else part
            )
        _remember(job)
    progress.state = "done"
    return placed


def is_whole(path: Path, entry: Entry, progress: Progress, cancel: threading.Event) -> bool:
    """Whether a file has the size and the hash that it must have.

    Raises:
        Interrupted: ``cancel`` was set.
    """
    if path.stat().st_size != entry.size:
        return False
    progress.state = "checking"
    digest = _digest(entry)
    progress.done = _hash_into(path, digest, progress, cancel)
    return digest.hexdigest() == entry.etag


def _remember(job: Job) -> None:
    """Note which commit the branch is.

    llama.cpp sees no file of a repository without such a note. Where only a pinned commit was ever
    asked for, that stands in for main until somebody asks what main is.
    """
    if job.branch is not None:
        hf_cache.remember(job.repo, job.branch, job.commit)
    elif hf_cache.ref(job.repo) is None:
        hf_cache.remember(job.repo, "main", job.commit)


def _collect(job: Job, part: Path, progress: Progress, cancel: threading.Event) -> None:
    """Fill the partial file and see that it is what it must be.

    A partial file that turns out wrong may have been wrong before: then once more from nothing.
    """
    for attempt in ("continue", "afresh"):
        continued = part.is_file() and part.stat().st_size > 0
        digest = _digest(job.entry)
        have = 0
        if continued:
            progress.state = "checking"
            have = _hash_into(part, digest, progress, cancel)
        digest = _fetch(job, part, have, digest, progress, cancel)
        if digest.hexdigest() == job.entry.etag and part.stat().st_size == job.entry.size:
            return
        part.unlink()
        if attempt == "afresh" or not continued:
            raise ModelFileError(
                f"what the Hub sends as {job.entry.path} of {job.repo} is not what it promises "
                f"(its hash is {digest.hexdigest()[:12]}…, not {job.entry.etag[:12]}…); "
                "nothing of it was kept, pull again later"
            )
    raise AssertionError("the second attempt returns or raises")


def _fetch(
    job: Job,
    part: Path,
    have: int,
    digest: Digest,
    progress: Progress,
    cancel: threading.Event,
) -> Digest:
    """Append what is missing, by as many requests as it takes; returns the digest of all."""
    entry, patience = job.entry, api.Patience(job.repo, cancel)
    if have > entry.size:
        have, digest = 0, _digest(entry)
        part.unlink()
    _require_room(part.parent, entry.size - have, entry.path)
    place = api.url(job.repo, job.commit, entry.path)
    progress.state, progress.done = "fetching", have
    with part.open("ab", buffering=0) as file:
        while have < entry.size:
            try:
                with get_session().stream(
                    "GET",
                    place,
                    headers=api.headers(have),
                    timeout=api.TIMEOUT,
                    follow_redirects=True,
                ) as response:
                    hf_raise_for_status(response)
                    _require_same(job, response)
                    if have and response.status_code == 200:  # the server knows no ranges
                        file.truncate(0)
                        have, digest = 0, _digest(entry)
                    for chunk in response.iter_raw():
                        room = entry.size - have
                        _write_all(file.fileno(), chunk[:room])
                        digest.update(chunk[:room])
                        have += min(len(chunk), room)
                        progress.done = have
                        progress.fetched += len(chunk)
                        patience.progress()
                        if cancel.is_set():
                            raise Interrupted("interrupted")
                        if len(chunk) > room:
                            break
                if have < entry.size:
                    patience.wait(httpx2.RemoteProtocolError("the connection ended early"))
            except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
                patience.wait(error)
        os.fsync(file.fileno())
    return digest


def _require_same(job: Job, response: httpx2.Response) -> None:
    """Refuse a file that is no longer the one that was looked up."""
    for step in (*response.history, response):
        said = step.headers.get("X-Linked-ETag", "").removeprefix("W/").strip('"')
        if said and said != job.entry.etag:
            raise ModelFileError(
                f"{job.entry.path} of {job.repo} was replaced while it was being pulled; pull "
                "again for the new one"
            )


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _require_room(folder: Path, needed: int, name: str) -> None:
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise LocalspecError(
            f"{name} needs {needed / 1e9:.2f} GB more, and the disk of {folder} has "
            f"{free / 1e9:.2f} GB free; make room, or move the cache with HF_HOME"
        )


@contextlib.contextmanager
def _alone(job: Job, progress: Progress, cancel: threading.Event) -> Iterator[None]:
    """Hold the lock of a file; another pull of it is waited for, and has then done the work."""
    path = hf_cache.lock(job.repo, job.entry.etag)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, mode=0o664)
    progress.state = "waiting"
    while True:
        try:
            lock.acquire(timeout=_LOCK_LOOK)
            break
        except filelock.Timeout:
            if cancel.is_set():
                raise Interrupted("interrupted") from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _writing(entry: Entry) -> Iterator[None]:
    """Turn what a disk refuses into errors of ours."""
    try:
        yield
    except OSError as error:
        cache = hf_cache.cache_folder()
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise LocalspecError(
                f"the disk is full while pulling {entry.path}; what has arrived is kept: make "
                f"room on the disk of {cache}, and pull again to continue"
            ) from None
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}:
            raise LocalspecError(
                f"cannot write to the Hugging Face cache {cache} ({error.strerror}); set HF_HOME "
                "to a folder that you may write to"
            ) from None
        raise LocalspecError(
            f"cannot keep {entry.path} in {cache}: {error.strerror or error}"
        ) from None


class Digest(Protocol):
    """What hashlib makes."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def _digest(entry: Entry) -> Digest:
    """sha256 of a large file; git's name for the content of a small one."""
    if entry.sha256 is not None:
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(f"blob {entry.size}\0".encode())
    return digest


def _hash_into(path: Path, digest: Digest, progress: Progress, cancel: threading.Event) -> int:
    """Digest a file; returns its bytes."""
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress.done = done
            if cancel.is_set():
                raise Interrupted("interrupted")
    return done
