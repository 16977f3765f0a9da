"""Fetches one file into its partial file over one or more connections, and hashes it meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path

from localspec.core.errors import Interrupted, LocalspecError
from localspec.models.catalog.hf_cache import ranges_file
from localspec.models.hub import byte_ranges
from localspec.models.hub.byte_ranges import MissingRanges
from localspec.models.hub.connection import Connection, PartialFile
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import (
    Digest,
    DownloadJob,
    DownloadProgress,
    ShownWaits,
    digest_of,
)
from localspec.models.hub.retry import Retry

BLOCK = 64 << 20
"""Bytes that a connection claims at a time."""
_MOST_BLOCKS = 128
"""Blocks of a file; larger files have larger blocks, so that requests stay few."""
_SPARE = 64 << 20
"""Bytes of disk that stay free."""
_HASHED_AT_ONCE = 1 << 20
_TICK = 0.02
_NOTED_EVERY = 1.0
LEAST_RATE, SLOW_AFTER = 10_000, 20.0
"""Bytes a second, and seconds: a connection that stays slower for that long is replaced by a new
one, which the Hub may send to another server.
"""
_MOST_DROPS = 3
"""Drops in a row; after that the line itself is slow."""
_PATIENCE = 0.5
"""Seconds for connections to end; one that is still being established is left to itself."""


class FileFetcher:
    """Fills the partial file of one job. Used once."""

    def __init__(
        self,
        job: DownloadJob,
        part: Path,
        progress: DownloadProgress,
        cancel: threading.Event,
        limit: ConnectionLimit,
    ) -> None:
        self._job, self._part, self._progress, self._cancel = job, part, progress, cancel
        self._limit, self._size = limit, job.entry.size
        self._note = ranges_file(part)
        self._connections: list[Connection] = []
        self._drops_left = _MOST_DROPS
        self._noted_at = time.monotonic()

    def fetch(self) -> tuple[str, bool]:
        """Fetch what is missing; returns the file's hash, and whether a download was continued.

        Raises:
            Interrupted: ``cancel`` was set; what has arrived stays.
            ModelFileError: the Hub serves another file now.
            LocalspecError: the disk is full, or the Hub fails.
            OSError: the file cannot be written.
        """
        missing = byte_ranges.read(self._note, self._part, self._size)
        if missing is None:
            self._part.unlink()
            self._note.unlink(missing_ok=True)
            missing = [(0, self._size)]
        lacking = sum(end - start for start, end in missing)
        self._noted = self._note.exists()
        self._require_room(lacking)
        self._progress.done = self._size - lacking
        self._progress.state = "fetching" if lacking else "checking"
        block = max(BLOCK, -(-self._size // _MOST_BLOCKS))
        self._ranges = MissingRanges(self._size, missing, block)
        self._retry = Retry(self._job.repo, ShownWaits(self._progress, self._cancel))
        with self._part.open("a+b", buffering=0):
            pass  # creates it
        with self._part.open("r+b", buffering=0) as file:
            self._file = PartialFile(file, self._ranges, self._progress, self._limit, self._retry)
            try:
                found = self._run()
            finally:
                self._end()
            os.fsync(file.fileno())
        return found.hexdigest(), lacking < self._size

    def _run(self) -> Digest:
        """Hash the arrived bytes in order while connections fetch the rest."""
        digest, hashed, restarts = digest_of(self._job.entry), 0, 0
        with self._part.open("rb", buffering=0) as file:
            while True:
                if self._cancel.is_set():
                    raise Interrupted("interrupted")
                if restarts != self._file.restarts:  # a server without range requests
                    digest, hashed, restarts = digest_of(self._job.entry), 0, self._file.restarts
                    file.seek(0)
                frontier = self._ranges.frontier
                if hashed < frontier and restarts == self._file.restarts:
                    block = file.read(min(_HASHED_AT_ONCE, frontier - hashed))
                    digest.update(block)
                    hashed += len(block)
                    if not block and restarts == self._file.restarts:
                        raise LocalspecError(
                            f"{self._part} was truncated while it was being written"
                        )
                elif frontier == self._size and not self._connections:
                    return digest
                else:
                    self._file.changed.wait(_TICK)
                    self._file.changed.clear()
                if not self._ranges.missing:
                    self._progress.state = "checking" if hashed < self._size else "fetching"
                self._manage()

    def _manage(self) -> None:
        """Manage connections: collect ended ones, open more, drop slow ones."""
        for connection in [c for c in self._connections if not c.is_alive()]:
            self._connections.remove(connection)
            if connection.extra:
                self._limit.release(refused=connection.refused)
            if connection.error is not None:
                raise connection.error
        if not self._connections and self._ranges.missing:
            self._open(extra=False)
        elif self._connections and self._can_use_more() and self._limit.acquire():
            self._write_note()  # before there can be holes
            self._noted = True
            self._open(extra=True)
        self._file.shared = any(c.extra for c in self._connections)
        now = time.monotonic()
        if self._noted and now - self._noted_at >= _NOTED_EVERY:
            self._noted_at = now
            self._write_note()
        self._drop_slow_ones()

    def _can_use_more(self) -> bool:
        """Whether another connection would have a range to fetch."""
        return self._file.ranged and (self._ranges.unclaimed > 0 or self._ranges.divisible)

    def _open(self, *, extra: bool) -> None:
        made = Connection(self._job, self._file, self._limit, extra=extra)
        self._connections.append(made)
        made.start()

    def _drop_slow_ones(self) -> None:
        for connection in self._connections:
            rate = connection.rate(SLOW_AFTER)
            if rate is None:
                continue
            if rate >= LEAST_RATE:
                self._drops_left = _MOST_DROPS
            elif self._drops_left > 0:
                self._drops_left -= 1
                connection.drop()

    def _end(self) -> None:
        """End all connections and save which ranges are still missing."""
        self._file.close()
        for connection in self._connections:
            connection.end()
        end = time.monotonic() + _PATIENCE
        for connection in self._connections:
            connection.join(max(0.0, end - time.monotonic()))
            if connection.extra:
                self._limit.release()
        if self._noted:
            with contextlib.suppress(OSError):  # an older note only lists more bytes
                self._write_note()

    def _write_note(self) -> None:
        byte_ranges.write(self._note, self._ranges.missing)

    def _require_room(self, needed: int) -> None:
        folder = self._part.parent
        free = shutil.disk_usage(folder).free
        if needed + _SPARE > free:
            raise LocalspecError(
                f"{self._job.entry.path} needs {needed / 1e9:.2f} GB more, and the disk of "
                f"{folder} has {free / 1e9:.2f} GB free; make room, or move the cache with HF_HOME"
            )
