"""The process with a projector, as the model's process sees it: what it is asked, and its answers.

Between two slices of an encoding the kernel stops the process (SIGSTOP), in the middle of whatever
operation: the passes of other replies have the processor for themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.core.errors import DecodeError, LocalspecError, ModelFileError
from localspec.core.files import defects, paths
from localspec.core.files.private import opener
from localspec.core.picture import Decoded, Samples
from localspec.core.processes import children
from localspec.llama import own_kernels
from localspec.llama.load_file import require_unchanged

MODULE = "localspec.llama.encoder_child"
LOG = "encoder-process.log"
"""What native code prints there when it aborts, in the state folder."""
_LOG_BYTES = 1 << 20
"""Size from which that log begins anew."""
_PART = 1 << 20
"""Bytes that are read at once."""
_STARTING_S = 600.0
"""A projector is loaded sooner, from any disk."""
_ENDED = "the process that encodes pictures ended: "


@dataclass(frozen=True, slots=True)
class Answer:
    """A message, and the bytes after it."""

    message: dict[str, Any]
    data: bytearray


class EncoderProcess:
    """The process, started again where it has ended. Callable from any thread."""

    def __init__(
        self,
        target: Path,
        projector: Path,
        library: Path,
        digests: Mapping[Path, str],
        *,
        threads: int,
        gpu: bool,
    ) -> None:
        """Start it, with the projector for the model of a file. ``digests`` are those of both files
        as they have to be: a process that is started again reads them again.

        Raises:
            UnsupportedModelError: the projector is damaged, of another model, or not known.
            ModelFileError: a file has changed.
            LocalspecError: libmtmd cannot be opened, or the process ended.
        """
        self._digests = digests
        self._arguments = ["--target", str(target), "--projector", str(projector)]
        self._arguments += ["--library", str(library), "--threads", str(threads)]
        self._arguments += ["--gpu"] if gpu else []
        kernels = own_kernels.registered()
        self._arguments += ["--kernels", *kernels] if kernels else []
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        with self._lock:
            self.facts = self._start()
        """What it told of the projector."""

    def close(self) -> None:
        """End it, and what it computes. May be called twice."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # first: whoever has the lock may wait for it
        with self._lock:
            self._end()

    def send(self, header: dict[str, Any], data: bytes, answers: int, begins: int) -> None:
        """Ask; answers are written to one descriptor, and a fork begins when it reads from the
        other. Blocks while the process is started.

        Raises:
            LocalspecError: it cannot be started.
        """
        line = json.dumps(header | {"bytes": len(data)}).encode()
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._socket is not None
            try:
                socket.send_fds(self._socket, [len(line).to_bytes(4, "little")], [answers, begins])
                self._socket.sendall(line)
                self._socket.sendall(data)
            except OSError as error:
                self._end()
                raise DecodeError(f"{_ENDED}{error.strerror or error}") from None

    def _start(self) -> dict[str, Any]:
        self._end()
        if self._closed:
            raise DecodeError("the encoder of pictures was closed")
        ours, its = socket.socketpair()
        more = ["--socket", str(its.fileno())]
        command, environment = children.command(MODULE, *self._arguments, *more)
        log = paths.make(paths.state_dir()) / LOG
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LOG_BYTES:
                log.unlink()
        try:
            with its, open(log, "ab", opener=opener) as file:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    # It forks: no threads but its own.
                    env=environment | {"OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[its.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise LocalspecError(
                f"the process that encodes pictures cannot be started: {defects.why(error)}"
            ) from None
        self._socket = ours
        line = b""
        ours.settimeout(_STARTING_S)
        with ours.makefile("rb") as lines:
            try:
                line = lines.readline()
            except TimeoutError:
                self._process.kill()
        ours.settimeout(None)
        if not line:
            how = self._how()
            self._end()
            raise LocalspecError(f"{_ENDED}{how}; its log is {log}")
        facts: dict[str, Any] = json.loads(line)
        if "error" in facts:
            self._end()
            raise children.read_failed(facts)
        try:
            for path, before in self._digests.items():
                require_unchanged(path, before)
        except ModelFileError:
            self._end()
            raise
        return facts

    def _how(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Job:
    """One request, and its answers as they come. Belongs to one thread.

    Where the process forks, it computes from `go_on` to `hold` alone.
    """

    def __init__(self, process: EncoderProcess, decoded: Decoded, first: int | None = None) -> None:
        """``first`` None: how the pixels or samples become a part of a prompt. Else: the rows of
        their chunks from that one on.
        """
        self._process = process
        self.first = 0 if first is None else first
        self._error: LocalspecError | None = None
        self._answers, answers = os.pipe()
        begins, self._begins = os.pipe()
        os.set_blocking(self._answers, False)
        self._arrivals = select.poll()
        self._arrivals.register(self._answers, select.POLLIN)
        self._arrived = bytearray()
        self._announced: dict[str, Any] | None = None
        self._pid: int | None = None
        """The process id of a fork, which computes or is stopped."""
        self._pidfd: int | None = None
        self.over = False
        """Whether there are no more answers."""
        self.computed = 0.0
        """Seconds from `go_on` to `hold`, since its last answer."""
        header: dict[str, Any] = {"first": first, "rate": 0}
        if isinstance(decoded, Samples):
            header["rate"], data = decoded.rate, decoded.data
        else:
            header |= {"width": decoded.width, "height": decoded.height}
            data = decoded.rgb

        def send() -> None:
            try:
                process.send(header, data, answers, begins)
            except LocalspecError as error:
                self._error = error
            finally:
                os.close(answers)
                os.close(begins)

        # A thread: the process may have to be started, or computes.
        threading.Thread(target=send, name="encoder", daemon=True).start()

    def go_on(self) -> None:
        """Let it compute."""
        self._signal("SIGCONT")

    def hold(self) -> None:
        """Let it stand still."""
        self._signal("SIGSTOP")

    def answer(self, seconds: float) -> Answer | None:
        """The next answer, after `go_on`; None where none has come within that time, or none comes
        any more.

        Raises:
            LocalspecError: that is the answer, or the process ended before its last one.
        """
        while not self.over:
            if (found := self._whole()) is not None:
                if "pid" in found.message:
                    self._begin(found.message["pid"])
                    continue
                if "error" in found.message:
                    self._close()
                    raise children.read_failed(found.message)
                if "end" in found.message:
                    self._close()
                    return None
                return found
            if not self._arrivals.poll(1000 * seconds):
                return None
            part = os.read(self._answers, _PART)
            if not part:
                self._close()
                raise self._error or DecodeError(_failed())
            self._arrived += part
        return None

    def end(self) -> None:
        """End it, whatever it does. May be called twice."""
        if not self.over:
            self._signal("SIGKILL")
            self._close()  # where nothing was forked, writing an answer fails, and it goes on

    def _close(self) -> None:
        self.over = True
        self._pid = None
        for descriptor in (self._answers, self._begins, self._pidfd):
            if descriptor is not None:
                os.close(descriptor)

    def _whole(self) -> Answer | None:
        """An answer that has arrived as a whole."""
        if self._announced is None:
            line, found, rest = self._arrived.partition(b"\n")
            if not found:
                return None
            self._announced, self._arrived = json.loads(bytes(line)), rest
        size = self._announced.get("bytes", 0)
        if len(self._arrived) < size:
            return None
        made = Answer(self._announced, self._arrived[:size])
        self._arrived, self._announced = self._arrived[size:], None
        return made

    def _begin(self, pid: int) -> None:
        """Tell the fork, which waits, to begin."""
        with contextlib.suppress(OSError, AttributeError):  # else it is known by its number alone
            self._pidfd = os.pidfd_open(pid)
        self._pid = pid
        with contextlib.suppress(BrokenPipeError):  # it has died: there is no answer either
            os.write(self._begins, b".")

    def _signal(self, name: str) -> None:
        if self._pid is not None:
            which = signal.Signals[name]
            with contextlib.suppress(ProcessLookupError):
                if self._pidfd is not None:
                    signal.pidfd_send_signal(self._pidfd, which)
                else:
                    os.kill(self._pid, which)


def _failed() -> str:
    log = paths.state_dir() / LOG
    return f"{_ENDED}native code failed, or memory ran out; its log is {log}"
