"""One connection that fetches ranges of a file, and the partial file that all of them write."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import threading
import time

import httpx2

from localspec.core.errors import Interrupted, ModelFileError
from localspec.models.hub import api, client
from localspec.models.hub.answers import WrongAnswerError, require_file, require_plain
from localspec.models.hub.byte_ranges import Claim, MissingRanges
from localspec.models.hub.client import REQUEST_ERRORS, StatusError
from localspec.models.hub.connection_limit import ConnectionLimit
from localspec.models.hub.download_jobs import DownloadJob, DownloadProgress
from localspec.models.hub.retry import Retry

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)


class ClosedError(Exception):
    """The partial file is closed to writers."""


class PartialFile:
    """A partial file that several connections write, and what is known about its server."""

    def __init__(
        self,
        file: io.FileIO,
        ranges: MissingRanges,
        progress: DownloadProgress,
        limit: ConnectionLimit,
        retry: Retry,
    ) -> None:
        self.ranges, self.progress, self.retry = ranges, progress, retry
        self.ranged = False
        """Whether the server has answered a range request with that range."""
        self.shared = False
        """Whether several connections fetch the file; each then asks for its block only."""
        self._restarts = 0
        self._most = progress.done
        """The most bytes that there were on disk; less is no progress after a new start."""
        self.changed = threading.Event()
        """Set when a connection has ended."""
        self._file, self._limit = file, limit
        self._lock, self._closed = threading.Lock(), False

    def write(self, claim: Claim, chunk: memoryview) -> int:
        """Write received bytes up to the end of the claim; returns how many were written.

        Raises:
            ClosedError: the file is closed.
            OSError: the file cannot be written.
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
            self.ranges.advance(claim, n_bytes)
            self.progress.done += n_bytes
            self.progress.fetched += n_bytes
            further = self.progress.done > self._most
            self._most = max(self._most, self.progress.done)
        if further:
            self.retry.progress()
        self._limit.count(n_bytes)
        return n_bytes

    def restart(self, claim: Claim) -> None:
        """Start again from 0, for a server without range requests. Counts as a failure, so one that
        never gets further than before is given up.

        Raises:
            ClosedError: the file is closed.
            LocalspecError: the attempts are used up; what has arrived stays.
        """
        self.retry.count(
            WrongAnswerError(
                f"the server begins {self.progress.name} anew each time and breaks off before its "
                "end; pull again later, or use another network or proxy"
            )
        )
        with self._lock:
            if self._closed:
                raise ClosedError
            self._file.truncate(0)
            self.ranges.restart(claim)
            self.progress.done = 0
            self._restarts += 1

    @property
    def restarts(self) -> int:
        """How often the download started again from 0; one that is about to is waited for, since
        the file is empty before it is counted.
        """
        with self._lock:
            return self._restarts

    def close(self) -> None:
        """Refuse all further writes."""
        with self._lock:
            self._closed = True


class Connection(threading.Thread):
    """A thread that fetches block after block.

    The first one of a file retries after errors, an extra one ends at its first error.
    """

    def __init__(
        self, job: DownloadJob, file: PartialFile, limit: ConnectionLimit, *, extra: bool
    ) -> None:
        super().__init__(daemon=True)  # a hanging connection must not keep the program alive
        self.extra = extra
        self.refused = False
        """Whether an extra connection was refused or cut by the server."""
        self.error: Exception | None = None
        """The error that ends the download of the file."""
        self._job, self._file, self._limit = job, file, limit
        self._socket: socket.socket | None = None
        self._dropped = self._ended = False
        self._since, self._received = time.monotonic(), 0

    def run(self) -> None:
        """Fetch until every range is claimed."""
        try:
            while not self._ended and not (self.extra and self._limit.surplus):
                claim = self._file.ranges.claim()
                if claim is None:
                    return
                try:
                    self._attempt(claim)
                finally:
                    self._file.ranges.release(claim)
        except (ClosedError, Interrupted):
            pass
        except Exception as error:  # noqa: BLE001 - raised again by the thread of the fetcher
            self.error = error
        finally:
            self._file.changed.set()

    def end(self) -> None:
        """Close the connection and end the thread."""
        self._ended = True
        self.drop()

    def drop(self) -> None:
        """Close the connection; the next attempt asks the Hub for the address again."""
        self._dropped = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def rate(self, after: float) -> float | None:
        """Bytes a second since the last rate; None until ``after`` seconds have passed."""
        seconds = time.monotonic() - self._since
        if seconds < after or self._socket is None:
            return None
        found = self._received / seconds
        self._since, self._received = time.monotonic(), 0
        return found

    def _attempt(self, claim: Claim) -> None:
        """Fetch a claim, or the part of it that one request delivers."""
        try:
            self._fetch(claim)
            if claim.at < claim.end and not self._ended:
                raise httpx2.RemoteProtocolError("the connection ended early")
        except REQUEST_ERRORS as error:
            dropped, self._dropped = self._dropped, False
            if dropped or self._ended:
                return
            if isinstance(error, StatusError) and error.status == 416:
                raise ModelFileError(
                    f"{self._job.entry.path} of {self._job.repo} is shorter on the download "
                    "server than the Hub states; pull again later"
                ) from None
            if self.extra:
                self.refused = self._ended = True
                return
            self._file.retry.wait(error)
        finally:
            self._socket = None

    def _fetch(self, claim: Claim) -> None:
        target, job = self._file, self._job
        end = claim.end if target.shared else target.ranges.reach(claim)
        asked = client.headers(start=claim.at, end=end if end < job.entry.size else None)
        place = api.url(job.repo, job.commit, job.entry.path)
        self._since, self._received, self._dropped = time.monotonic(), 0, False
        with client.stream(place, asked) as response:
            stream = response.extensions.get("network_stream")
            self._socket = stream.get_extra_info("socket") if stream is not None else None
            self._check_response(response, claim)
            position = claim.at
            for chunk in response.iter_raw():
                self._received += len(chunk)
                rest = memoryview(chunk)
                while rest:
                    written = target.write(claim, rest)
                    position, rest = position + written, rest[written:]
                    if claim.at != position:  # another connection took over the rest
                        return
                    if claim.at >= claim.end and not target.ranges.extend(claim):
                        return

    def _check_response(self, response: httpx2.Response, claim: Claim) -> None:
        """Check that the answer is the requested range of the expected file."""
        job = self._job
        for step in (*response.history, response):
            etag = step.headers.get("X-Linked-ETag", "").removeprefix("W/").strip('"')
            if etag and etag != job.entry.etag:
                raise ModelFileError(
                    f"{job.entry.path} of {job.repo} was replaced while it was being pulled; pull "
                    "again for the new one"
                )
        require_plain(response, job.entry)
        if response.status_code == 206:
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != claim.at:
                raise httpx2.RemoteProtocolError("the server sends another range than requested")
            if found[2] not in {"*", str(job.entry.size)}:
                raise ModelFileError(
                    f"{job.entry.path} of {job.repo} has {found[2]} bytes on the download server, "
                    f"not the {job.entry.size} that the Hub states; pull again later"
                )
            self._file.ranged = True
            return
        require_file(response, job.entry)  # before anything of it replaces what has arrived
        if claim.at:
            if self.extra or self._file.ranged:
                raise httpx2.RemoteProtocolError("the server ignores range requests")
            self._file.restart(claim)
