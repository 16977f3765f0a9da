"""Downloads that continue where they stopped, verified and stored in the Hugging Face cache.

huggingface_hub starts a file again after an interruption; with gigabytes over a home line that is
not good enough. Here bytes go into a partial file that outlives the process and is named after the
hash of the complete file. A file with that hash becomes part of the cache in one rename; from then
on it is like any file that huggingface_hub or llama.cpp fetched.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock

from localspec.core.errors import Interrupted, LocalspecError, ModelFileError
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import Digest, DownloadJob, DownloadProgress, digest_of
from localspec.models.hub.file_fetcher import FileFetcher

_BLOCK = 1 << 20
_LOCK_POLL = 0.2
"""Seconds between attempts to take a lock that another pull holds."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def obtain(
    job: DownloadJob, progress: DownloadProgress, cancel: threading.Event, limit: ConnectionLimit
) -> Path:
    """Get a file into the cache, complete; returns its path there.

    ``limit`` bounds the connections of all files of the pull.

    Raises:
        ModelFileError: the Hub serves another content than it states.
        LocalspecError: the disk is full or may not be written, or see `localspec.models.hub.api`.
        Interrupted: ``cancel`` was set; what has arrived stays.
    """
    entry = job.entry
    pointer = hf_cache.find_file(job.repo, entry.path, job.commit)
    if pointer is not None and is_whole(pointer, entry, progress, cancel):
        progress.state = "done"
        with contextlib.suppress(OSError):  # a read-only cache can still be read
            _record_ref(job)
        return pointer
    with _writing(entry):
        part = hf_cache.partial(job.repo, entry.etag)
        part.parent.mkdir(parents=True, exist_ok=True)
        # huggingface_hub regards a repository without this folder as damaged.
        (part.parent.parent / "snapshots").mkdir(exist_ok=True)
        with _locked(job, progress, cancel):
            blob = part.with_name(entry.etag)
            whole = blob.is_file() and is_whole(blob, entry, progress, cancel)
            if not whole:
                _fetch(job, part, progress, cancel, limit)
            placed = hf_cache.place(
                job.repo, job.commit, entry.path, entry.etag, None if whole else part
            )
        _record_ref(job)
    progress.state = "done"
    return placed


def is_whole(
    path: Path, entry: RepoFile, progress: DownloadProgress, cancel: threading.Event
) -> bool:
    """Whether a file has the size and the hash that the Hub states.

    Raises:
        Interrupted: ``cancel`` was set.
    """
    if path.stat().st_size != entry.size:
        return False
    progress.state = "checking"
    digest = digest_of(entry)
    progress.done = _hash_into(path, digest, progress, cancel)
    return digest.hexdigest() == entry.etag


def _record_ref(job: DownloadJob) -> None:
    """Record the commit of the branch.

    llama.cpp sees no file of a repository without such a record. Where only pinned commits were
    pulled, one of them is recorded as main until main itself is looked up.
    """
    if job.branch is not None:
        hf_cache.write_ref(job.repo, job.branch, job.commit)
    elif hf_cache.ref(job.repo) is None:
        hf_cache.write_ref(job.repo, "main", job.commit)


def _fetch(
    job: DownloadJob,
    part: Path,
    progress: DownloadProgress,
    cancel: threading.Event,
    limit: ConnectionLimit,
) -> None:
    """Fill the partial file and verify its hash.

    Where a continued download has the wrong hash, it is fetched once more from the start.
    """
    for attempt in ("continue", "restart"):
        found, continued = FileFetcher(job, part, progress, cancel, limit).fetch()
        if found == job.entry.etag:
            return
        part.unlink(missing_ok=True)
        hf_cache.ranges_file(part).unlink(missing_ok=True)
        if attempt == "restart" or not continued:
            raise ModelFileError(
                f"what the Hub sends as {job.entry.path} of {job.repo} is not what it states "
                f"(its hash is {found[:12]}…, not {job.entry.etag[:12]}…); "
                "the download was deleted, pull again later"
            )
    raise AssertionError("the second attempt returns or raises")


@contextlib.contextmanager
def _locked(
    job: DownloadJob, progress: DownloadProgress, cancel: threading.Event
) -> Iterator[None]:
    """Hold the lock of a file. Waits while another pull holds it."""
    path = hf_cache.lock(job.repo, job.entry.etag)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, mode=0o664, fallback_to_soft=False)
    progress.state = "waiting"
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL)
            break
        except filelock.Timeout:
            if cancel.is_set():
                raise Interrupted("interrupted") from None
        except OSError as error:
            # Some network file systems have no locks (filelock's own answer to that is a warning in
            # the middle of the output). Two pulls then fetch a file twice, which is harmless: both
            # write the same bytes to the same places.
            if error.errno not in _NO_LOCKS:
                raise
            break
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _writing(entry: RepoFile) -> Iterator[None]:
    """Raise errors of the disk as LocalspecErrors that say what to do."""
    try:
        yield
    except OSError as error:
        cache = hf_cache.cache_folder()
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise LocalspecError(
                f"the disk is full while pulling {entry.path}; what has arrived stays: make "
                f"room on the disk of {cache}, and pull again to continue"
            ) from None
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}:
            raise LocalspecError(
                f"cannot write to the Hugging Face cache {cache} ({error.strerror}); set HF_HOME "
                "to a folder that you may write to"
            ) from None
        raise LocalspecError(
            f"cannot store {entry.path} in {cache}: {error.strerror or error}"
        ) from None


def _hash_into(
    path: Path, digest: Digest, progress: DownloadProgress, cancel: threading.Event
) -> int:
    """Hash a file; returns its bytes."""
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress.done = done
            if cancel.is_set():
                raise Interrupted("interrupted")
    return done
