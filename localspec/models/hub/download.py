"""Downloads that continue where they stopped, verified, and put where everybody looks.

huggingface_hub starts a file again after an interruption; with gigabytes over a home line that is
not good enough. Here bytes go into a partial file that outlives the process, under the hash that
they must have in the end. Only a file with that hash becomes part of the Hugging Face cache, in one
rename; from there on it is like any that huggingface_hub or llama.cpp fetched.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock

from localspec.errors import Interrupted, LocalspecError, ModelFileError
from localspec.models.hub import hf_cache
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import Digest, DownloadJob, DownloadProgress, digest_of
from localspec.models.hub.file_fetcher import FileFetcher
from localspec.models.hub.file_names import Entry

_BLOCK = 1 << 20
_LOCK_LOOK = 0.2
"""Seconds between looks at a lock that another pull holds."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def obtain(
    job: DownloadJob, progress: DownloadProgress, cancel: threading.Event, lanes: ConnectionLimit
) -> Path:
    """Have a file in the cache, whole; returns where it is.

    ``lanes`` says how many connections all files of the pull may have.

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
                _collect(job, part, progress, cancel, lanes)
            placed = hf_cache.place(
                job.repo, job.commit, entry.path, entry.etag, None if whole else part
            )
        _remember(job)
    progress.state = "done"
    return placed


def is_whole(path: Path, entry: Entry, progress: DownloadProgress, cancel: threading.Event) -> bool:
    """Whether a file has the size and the hash that it must have.

    Raises:
        Interrupted: ``cancel`` was set.
    """
    if path.stat().st_size != entry.size:
        return False
    progress.state = "checking"
    digest = digest_of(entry)
    progress.done = _hash_into(path, digest, progress, cancel)
    return digest.hexdigest() == entry.etag


def _remember(job: DownloadJob) -> None:
    """Note which commit the branch is.

    llama.cpp sees no file of a repository without such a note. Where only a pinned commit was ever
    asked for, that stands in for main until somebody asks what main is.
    """
    if job.branch is not None:
        hf_cache.remember(job.repo, job.branch, job.commit)
    elif hf_cache.ref(job.repo) is None:
        hf_cache.remember(job.repo, "main", job.commit)


def _collect(
    job: DownloadJob,
    part: Path,
    progress: DownloadProgress,
    cancel: threading.Event,
    lanes: ConnectionLimit,
) -> None:
    """Fill the partial file and see that it is what it must be.

    A partial file that turns out wrong may have been wrong before: then once more from nothing.
    """
    for attempt in ("continue", "afresh"):
        found, continued = FileFetcher(job, part, progress, cancel, lanes).collect()
        if found == job.entry.etag:
            return
        part.unlink(missing_ok=True)
        hf_cache.ranges_file(part).unlink(missing_ok=True)
        if attempt == "afresh" or not continued:
            raise ModelFileError(
                f"what the Hub sends as {job.entry.path} of {job.repo} is not what it promises "
                f"(its hash is {found[:12]}…, not {job.entry.etag[:12]}…); "
                "nothing of it was kept, pull again later"
            )
    raise AssertionError("the second attempt returns or raises")


@contextlib.contextmanager
def _alone(job: DownloadJob, progress: DownloadProgress, cancel: threading.Event) -> Iterator[None]:
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
        except (NotImplementedError, OSError) as error:
            # Some network file systems know no locks. Two pulls then fetch a file twice, no worse:
            # both write the same bytes to the same places, and it is whole when it is named.
            if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                raise
            break
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


def _hash_into(
    path: Path, digest: Digest, progress: DownloadProgress, cancel: threading.Event
) -> int:
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
