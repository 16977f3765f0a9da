"""Runs several downloads at once, and verifies files that are in the cache."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import Interrupted
from localspec.core.interrupt import Cancelled
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.catalog.pair import HubFile
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download import is_whole, obtain
from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress

_AT_ONCE = 4
"""Files; `localspec.models.hub.connection_limit` decides about more connections."""
_TICK = 0.1
_PATIENCE = 3.0
"""Seconds for the other downloads to stop after one has failed."""
_STOP_PATIENCE = 1.0
"""Seconds for them after the user stopped them; a hanging thread ends with the program."""

Watch = Callable[[Sequence[DownloadProgress]], None]
"""Called about ten times a second to show the progress."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of a finished pull."""

    paths: tuple[Path, ...]
    fetched: int
    """Bytes received."""


def obtain_all(jobs: Sequence[DownloadJob], watch: Watch, stopped: Cancelled) -> Fetched:
    """Get all files, several at once; paths are in the order of the jobs.

    Raises:
        Interrupted: ``stopped`` returned True; what has arrived stays.
        LocalspecError: the first error of a download.
    """
    bars = [DownloadProgress(job.name, job.entry.size) for job in jobs]
    found: dict[int, Path] = {}
    limit = ConnectionLimit()

    def get(index: int, cancel: threading.Event) -> None:
        found[index] = obtain(jobs[index], bars[index], cancel, limit)

    _in_threads(len(jobs), get, lambda: watch(bars), stopped)
    return Fetched(tuple(found[i] for i in range(len(jobs))), sum(bar.fetched for bar in bars))


def is_here(file: HubFile, watch: Watch, stopped: Cancelled) -> Path | None:
    """The file in the cache, if it and its shards are there with the right hashes; never connects.

    Raises:
        Interrupted: ``stopped`` returned True.
    """
    paths = file.paths()
    alone = len(paths) == 1
    entries = [_expected(file, p, first=i == 0, alone=alone) for i, p in enumerate(paths)]
    bars = [
        DownloadProgress(path.name, entry.size) for path, entry in zip(paths, entries, strict=True)
    ]
    whole: list[bool] = []

    def verify(index: int, cancel: threading.Event) -> None:
        if hf_cache.is_hash(entries[index].etag):  # else its hash is not known
            whole.append(is_whole(paths[index], entries[index], bars[index], cancel))
        bars[index].state = "done"

    _in_threads(len(paths), verify, lambda: watch(bars), stopped)
    return paths[0] if paths and all(whole) else None


def _expected(file: HubFile, path: Path, *, first: bool, alone: bool) -> RepoFile:
    """Size and hash that a cached file must have: the pinned ones, or those by its blob's name."""
    etag = (file.sha256 if first else None) or hf_cache.etag(path)
    known = file.n_bytes if alone and file.revision else None
    size = known if known is not None else path.stat().st_size
    return RepoFile(path.name, size, sha256=etag if len(etag) == 64 else None, oid=etag)


def _in_threads(
    count: int,
    work: Callable[[int, threading.Event], None],
    tick: Callable[[], None],
    stopped: Cancelled,
) -> None:
    """Call ``work(0)`` to ``work(count - 1)`` in threads, and ``tick`` meanwhile."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(count):
        waiting.put(index)
    cancel, errors = threading.Event(), queue.SimpleQueue[BaseException]()
    # Daemons: a hanging connection must not keep the program alive after Ctrl-C.
    threads = [
        threading.Thread(target=_run_queue, args=(waiting, work, cancel, errors), daemon=True)
        for _ in range(min(count, _AT_ONCE))
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not cancel.is_set():
        tick()
        if stopped():
            cancel.set()
        next((t for t in threads if t.is_alive()), threads[0]).join(_TICK)
    deadline = time.monotonic() + (_STOP_PATIENCE if stopped() else _PATIENCE)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    tick()
    if stopped():
        raise Interrupted("interrupted")
    if not errors.empty():
        raise errors.get()


def _run_queue(
    waiting: queue.SimpleQueue[int],
    work: Callable[[int, threading.Event], None],
    cancel: threading.Event,
    errors: queue.SimpleQueue[BaseException],
) -> None:
    """Work through the queue; the first failure cancels all threads."""
    while not cancel.is_set():
        try:
            index = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            work(index, cancel)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            errors.put(error)
            cancel.set()
