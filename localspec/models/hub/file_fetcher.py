"""One file, fetched into its partial file over one connection or several, and hashed meanwhile."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from pathlib import Path

from localspec.errors import Interrupted, LocalspecError
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
from localspec.models.hub.hf_cache import ranges_file
from localspec.models.hub.retry import Retry

BLOCK = 64 << 20
"""Bytes that a connection fetches before it looks for the next to fetch."""
_MOST_BLOCKS = 128
"""Of a file: larger files have larger blocks, so that requests stay few."""
_SPARE = 64 << 20
"""Bytes of disk that are left alone."""
_HASHED_AT_ONCE = 1 << 20
_TICK = 0.02
_NOTED_EVERY = 1.0
LEAST_RATE, SLOW_AFTER = 10_000, 20.0
"""Bytes a second that a connection must bring, and seconds after which one that does not is left
for another, to which the Hub may name another place."""
_LEFT_AT_MOST = 3
"""Times in a row; a line that is slower than that is."""
_PATIENCE = 0.5
"""Seconds for connections to end; what hangs in a connection that is not there yet is left."""


class FileFetcher:
    """Fills the partial file of a job. Use it once."""

    def __init__(
        self,
        job: DownloadJob,
        part: Path,
        progress: DownloadProgress,
        cancel: threading.Event,
        lanes: ConnectionLimit,
    ) -> None:
        self._job, self._part, self._progress, self._cancel = job, part, progress, cancel
        self._lanes, self._size = lanes, job.entry.size
        self._note = ranges_file(part)
        self._connections: list[Connection] = []
        self._slow_left = _LEFT_AT_MOST
        self._noted_at = time.monotonic()

    def collect(self) -> tuple[str, bool]:
        """The hash of the whole file, and whether some of it was here before.

        Raises:
            Interrupted: ``cancel`` was set; what has arrived is kept.
            ModelFileError: the Hub serves another file by now.
            LocalspecError: no room, or the Hub has trouble.
            OSError: the disk refuses.
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
        self._spans = MissingRanges(self._size, missing, block)
        self._patience = Retry(self._job.repo, ShownWaits(self._progress, self._cancel))
        with self._part.open("a+b", buffering=0):
            pass  # made, if it was not there
        with self._part.open("r+b", buffering=0) as file:
            self._writer = PartialFile(
                file, self._spans, self._progress, self._lanes, self._patience
            )
            try:
                found = self._run()
            finally:
                self._end()
            os.fsync(file.fileno())
        return found.hexdigest(), lacking < self._size

    def _run(self) -> Digest:
        """Hash what is there while connections bring the rest."""
        digest, hashed, era = digest_of(self._job.entry), 0, 0
        with self._part.open("rb", buffering=0) as file:
            while True:
                if self._cancel.is_set():
                    raise Interrupted("interrupted")
                if era != self._writer.era:  # a server without ranges began again
                    digest, hashed, era = digest_of(self._job.entry), 0, self._writer.era
                    file.seek(0)
                frontier = self._spans.frontier
                if hashed < frontier and era == self._writer.era:
                    block = file.read(min(_HASHED_AT_ONCE, frontier - hashed))
                    digest.update(block)
                    hashed += len(block)
                    if not block and era == self._writer.era:
                        raise LocalspecError(f"{self._part} was cut while it was being written")
                elif frontier == self._size and not self._connections:
                    return digest
                else:
                    self._writer.news.wait(_TICK)
                    self._writer.news.clear()
                if not self._spans.missing:
                    self._progress.state = "checking" if hashed < self._size else "fetching"
                self._attend()

    def _attend(self) -> None:
        """See to the connections: their ends, more of them, those that are too slow."""
        for connection in [c for c in self._connections if not c.is_alive()]:
            self._connections.remove(connection)
            if connection.extra:
                self._lanes.give_back(refused=connection.refused)
            if connection.error is not None:
                raise connection.error
        if not self._connections and self._spans.missing:
            self._open(extra=False)
        elif self._connections and self._worth_more() and self._lanes.take():
            self._write_note()  # before there may be holes
            self._noted = True
            self._open(extra=True)
        self._writer.shared = any(c.extra for c in self._connections)
        now = time.monotonic()
        if self._noted and now - self._noted_at >= _NOTED_EVERY:
            self._noted_at = now
            self._write_note()
        self._leave_slow_ones()

    def _worth_more(self) -> bool:
        """Whether another connection would find something to do."""
        return self._writer.ranged and (self._spans.unclaimed > 0 or self._spans.divisible)

    def _open(self, *, extra: bool) -> None:
        made = Connection(self._job, self._writer, self._lanes, extra=extra)
        self._connections.append(made)
        made.start()

    def _leave_slow_ones(self) -> None:
        for connection in self._connections:
            rate = connection.rate(SLOW_AFTER)
            if rate is None:
                continue
            if rate >= LEAST_RATE:
                self._slow_left = _LEFT_AT_MOST
            elif self._slow_left > 0:
                self._slow_left -= 1
                connection.leave()

    def _end(self) -> None:
        """End all connections, and note what is missing then."""
        self._writer.close()
        for connection in self._connections:
            connection.end()
        end = time.monotonic() + _PATIENCE
        for connection in self._connections:
            connection.join(max(0.0, end - time.monotonic()))
            if connection.extra:
                self._lanes.give_back()
        if self._noted:
            with contextlib.suppress(OSError):  # an older note says the same of fewer bytes
                self._write_note()

    def _write_note(self) -> None:
        byte_ranges.write(self._note, self._spans.missing)

    def _require_room(self, needed: int) -> None:
        folder = self._part.parent
        free = shutil.disk_usage(folder).free
        if needed + _SPARE > free:
            raise LocalspecError(
                f"{self._job.entry.path} needs {needed / 1e9:.2f} GB more, and the disk of "
                f"{folder} has {free / 1e9:.2f} GB free; make room, or move the cache with HF_HOME"
            )
