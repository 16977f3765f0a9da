"""One connection that fetches spans of a file, and the file that all of them write into."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import threading
import time

import httpx2

from localspec.errors import Interrupted, ModelFileError
from localspec.models.hub import api, client
from localspec.models.hub.byte_ranges import Claim, MissingRanges
from localspec.models.hub.client import REQUEST_ERRORS, StatusError
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress
from localspec.models.hub.retry import Retry

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)


class ClosedError(Exception):
    """The file takes nothing any more."""


class PartialFile:
    """A partial file, written at many places, and what is known of how it is served."""

    def __init__(
        self,
        file: io.FileIO,
        spans: MissingRanges,
        progress: DownloadProgress,
        lanes: ConnectionLimit,
        patience: Retry,
    ) -> None:
        self.spans, self.progress, self.patience = spans, progress, patience
        self.ranged = False
        """Whether the server has answered with a range."""
        self.shared = False
        """Whether several connections fetch the file, so that each asks for its block only."""
        self.era = 0
        """How often the file was begun again."""
        self.news = threading.Event()
        self._file, self._lanes = file, lanes
        self._lock, self._closed = threading.Lock(), False

    def write(self, claim: Claim, chunk: memoryview) -> int:
        """Write what a connection brought, up to the end of its claim; returns how many bytes.

        Raises:
            ClosedError: nothing is to be written any more.
            OSError: the disk refuses.
        """
        with self._lock:
            if self._closed:
                raise ClosedError
            at = claim.at
            view = chunk[: max(0, claim.end - at)]
            n_bytes = len(view)
            while view:
                written = os.pwrite(self._file.fileno(), view, at)
                at, view = at + written, view[written:]
            self.spans.advance(claim, n_bytes)
            self.progress.done += n_bytes
            self.progress.fetched += n_bytes
        self.patience.progress()
        self._lanes.arrived(n_bytes)
        return n_bytes

    def restart(self, claim: Claim) -> None:
        """Begin at the front: the server knows no ranges."""
        with self._lock:
            if self._closed:
                raise ClosedError
            self._file.truncate(0)
            self.spans.restart(claim)
            self.progress.done = 0
            self.era += 1

    def close(self) -> None:
        """Take nothing any more."""
        with self._lock:
            self._closed = True


class Connection(threading.Thread):
    """Fetches block after block. The first of a file is patient; an extra one ends at an error."""

    def __init__(
        self, job: DownloadJob, writer: PartialFile, lanes: ConnectionLimit, *, extra: bool
    ) -> None:
        super().__init__(daemon=True)  # one that hangs must not keep the program alive
        self.extra = extra
        self.refused = False
        """Whether an extra connection ended because it was not wanted."""
        self.error: Exception | None = None
        """What the whole file fails with."""
        self._job, self._writer, self._lanes = job, writer, lanes
        self._socket: socket.socket | None = None
        self._left = self._ended = False
        self._since, self._brought = time.monotonic(), 0

    def run(self) -> None:
        """Fetch until nothing is left to fetch."""
        try:
            while not self._ended and not (self.extra and self._lanes.surplus):
                claim = self._writer.spans.claim()
                if claim is None:
                    return
                try:
                    self._attempt(claim)
                finally:
                    self._writer.spans.release(claim)
        except (ClosedError, Interrupted):
            pass
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error
        finally:
            self._writer.news.set()

    def end(self) -> None:
        """Stop at once and for good."""
        self._ended = True
        self.leave()

    def leave(self) -> None:
        """Drop the connection; the next attempt asks the Hub again where the file is."""
        self._left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def rate(self, after: float) -> float | None:
        """Bytes a second since it was last told, if that is so many seconds ago."""
        seconds = time.monotonic() - self._since
        if seconds < after or self._socket is None:
            return None
        found = self._brought / seconds
        self._since, self._brought = time.monotonic(), 0
        return found

    def _attempt(self, claim: Claim) -> None:
        """Fetch a claim, or as much of it as one request brings."""
        try:
            self._fetch(claim)
            if claim.at < claim.end and not self._ended:
                raise httpx2.RemoteProtocolError("the connection ended early")
        except REQUEST_ERRORS as error:
            left, self._left = self._left, False
            if left or self._ended:
                return
            if isinstance(error, StatusError) and error.status == 416:
                raise ModelFileError(
                    f"{self._job.entry.path} of {self._job.repo} is shorter where it is sent from "
                    "than the Hub states; pull again later"
                ) from None
            if self.extra:
                self.refused = self._ended = True
                return
            self._writer.patience.wait(error)
        finally:
            self._socket = None

    def _fetch(self, claim: Claim) -> None:
        writer, job = self._writer, self._job
        end = claim.end if writer.shared else writer.spans.reach(claim)
        asked = client.headers(start=claim.at, end=end if end < job.entry.size else None)
        place = api.url(job.repo, job.commit, job.entry.path)
        self._since, self._brought, self._left = time.monotonic(), 0, False
        with client.stream(place, asked) as response:
            stream = response.extensions.get("network_stream")
            self._socket = stream.get_extra_info("socket") if stream is not None else None
            self._require_same(response, claim)
            position = claim.at
            for chunk in response.iter_raw():
                self._brought += len(chunk)
                rest = memoryview(chunk)
                while rest:
                    written = writer.write(claim, rest)
                    position, rest = position + written, rest[written:]
                    if claim.at != position:  # another connection has taken over from here on
                        return
                    if claim.at >= claim.end and not writer.spans.extend(claim):
                        return

    def _require_same(self, response: httpx2.Response, claim: Claim) -> None:
        """See that the answer is the part that was asked for, of the file that was looked up."""
        job = self._job
        for step in (*response.history, response):
            etag = step.headers.get("X-Linked-ETag", "").removeprefix("W/").strip('"')
            if etag and etag != job.entry.etag:
                raise ModelFileError(
                    f"{job.entry.path} of {job.repo} was replaced while it was being pulled; pull "
                    "again for the new one"
                )
        if response.status_code == 206:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != claim.at:
                raise httpx2.RemoteProtocolError("the server sends another part than was asked for")
            if found[2] not in {"*", str(job.entry.size)}:
                raise ModelFileError(
                    f"{job.entry.path} of {job.repo} has {found[2]} bytes where it is sent from, "
                    f"not the {job.entry.size} that the Hub states; pull again later"
                )
            self._writer.ranged = True
        elif claim.at:
            if self.extra or self._writer.ranged:
                raise httpx2.RemoteProtocolError("the server ignores which part is asked for")
            self._writer.restart(claim)
