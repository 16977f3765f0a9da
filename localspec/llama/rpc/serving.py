"""The parent of a worker's process: starts it, tells about clients, starts it again if it dies."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from localspec.core.endpoint import Endpoint
from localspec.core.errors import WorkerError
from localspec.core.files import defects
from localspec.core.processes import crash
from localspec.core.processes.children import command
from localspec.llama.rpc import handshake

_MODULE = "localspec.loading.rpc_server"
_START_S = 60.0
"""Time limit of a start; a driver that starts up can take several seconds."""
_POLL_S = 0.1
_TERM_S = 2.0
_MOST_DEATHS = 5
"""Deaths in `_SHORT_S` each after which it is not started again."""
_SHORT_S = 5.0
_TAIL = 1 << 14

_LEFT = "the client has left"
_EVENTS = {
    "Accepted client connection": "a client has connected",
    "Client connection closed": _LEFT,
}
"""Lines of llama.cpp, and ours for them."""


class Serving:
    """A worker's process."""

    def __init__(
        self,
        plugin: Path,
        endpoint: Endpoint,
        threads: int,
        cache: Path | None,
        tell: Callable[[str], None],
    ) -> None:
        """``endpoint`` is numeric. ``tell`` is given a line for each event."""
        arguments = ["--plugin", str(plugin), "--address", str(endpoint), "--threads", str(threads)]
        if cache is not None:
            arguments += ["--cache", str(cache)]
        self._line, self._environment = command(_MODULE, *arguments)
        self._endpoint = endpoint
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._native = b""
        self._ours = True
        """Whether the client is our own question, which nobody is told of."""

    def start(self) -> handshake.Worker:
        """Start it; returns when it answers.

        Raises:
            WorkerError: it ended, or does not answer.
        """
        self._ours, self._native = True, b""
        try:
            process = self._process = subprocess.Popen(
                self._line,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        except OSError as error:
            raise WorkerError(f"the worker cannot be started: {defects.why(error)}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        for target, stream in ((self._events, process.stdout), (self._errors, process.stderr)):
            threading.Thread(target=target, args=(stream,), daemon=True).start()
        until = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(WorkerError):
                return handshake.ask(self._local)
            time.sleep(_POLL_S)
        self.stop()
        raise WorkerError(f"the worker does not start: {self._why()}")

    @property
    def _local(self) -> Endpoint:
        """Where this machine itself reaches it."""
        host = "127.0.0.1" if self._endpoint.host == "0.0.0.0" else self._endpoint.host  # noqa: S104 - compared only
        return Endpoint(host, self._endpoint.port)

    def run(self) -> None:
        """Serve until interrupted; a process that dies is started again.

        Raises:
            WorkerError: it dies again and again.
        """
        deaths = 0
        while True:
            began = time.monotonic()
            assert self._process is not None  # started
            self._process.wait()
            deaths = deaths + 1 if time.monotonic() - began < _SHORT_S else 1
            self.stop()
            if deaths > _MOST_DEATHS:
                raise WorkerError(f"the worker ends again and again: {self._why()}")
            self._tell(f"the process with the devices ended: {self._why()}; it is started again")
            self.start()

    def stop(self) -> None:
        """End the process. May be called twice."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_TERM_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _why(self) -> str:
        status = self._process.returncode if self._process is not None else None
        native = self._native.decode("utf-8", "replace")
        if status is not None and status < 0:
            if -status == signal.SIGTERM:
                return "it did not answer"
            return crash.explain(-status, "", native)
        words = crash.last_words(native).removeprefix("localspec: ")
        return words or f"it ended with exit status {status}"

    def _events(self, stream: IO[bytes]) -> None:
        for raw in stream:
            said = _EVENTS.get(raw.decode("utf-8", "replace").strip())
            if said is not None and not self._ours:
                self._tell(said)
            elif said == _LEFT:
                self._ours = False

    def _errors(self, stream: IO[bytes]) -> None:
        while part := stream.read1(_TAIL):  # type: ignore[attr-defined] # a BufferedReader
            self._native = (self._native + part)[-_TAIL:]


def free_port(host: str, port: int) -> int:
    """The port, if this machine may listen there; for 0 one that is free.

    Raises:
        WorkerError: it is in use, not allowed, or the address is not this machine's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError as error:
            reasons = {
                errno.EADDRINUSE: "is in use: another worker may run; choose another port",
                errno.EADDRNOTAVAIL: "is not an address of this machine",
                errno.EACCES: "is not allowed; choose a port from 1024 on",
            }
            reason = reasons.get(error.errno or 0, f"cannot be used: {error.strerror}")
            raise WorkerError(f"{host}:{port} {reason}") from None
        return int(trial.getsockname()[1])
