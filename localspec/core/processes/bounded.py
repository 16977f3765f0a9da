"""Work for strangers in processes of their own, with limits of time and memory.

A chat template and a grammar are programs of somebody else: they may loop for ever or ask for all
memory there is. A process that takes too long, takes too much, or whose answer nobody wants any
more is ended; the next request starts another.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from localspec.core.errors import Interrupted, LocalspecError
from localspec.core.files import defects
from localspec.core.interrupt import Cancelled
from localspec.core.processes import children

_LOOK_SECONDS = 0.05
STARTING_SECONDS = 30.0
"""More for the first answer, on a machine that is busy."""
_FROM_OUTSIDE = (-1, -2, -9, -15)
"""Exit codes of a process that somebody ended: SIGHUP, SIGINT, SIGKILL, SIGTERM."""


class TooMuchError(Exception):
    """A request took more time or memory than it may; the text says which."""


class EndedError(TooMuchError):
    """The process was ended from outside: by the limit of the clock, which runs on where a machine
    is busy, or by somebody else. The same request may be answered the next time.
    """


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may take."""

    seconds: float
    """Until the process is ended from outside; it may end itself sooner."""
    memory: int
    """Bytes of the process."""
    starting: float = STARTING_SECONDS
    told: str = ""
    """The limits in words."""


class BoundedProcess:
    """Starts a module that answers one JSON object a line; one request at a time."""

    def __init__(
        self,
        module: str,
        task: str,
        bounds: Callable[[], Bounds],
    ) -> None:
        """``task`` says in messages what the process does."""
        self._module = module
        self._task = task
        self._bounds = bounds
        self._knows: str | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._fresh = True

    def ask(
        self,
        request: Mapping[str, Any],
        cancelled: Cancelled,
        first: tuple[str, Callable[[], Mapping[str, Any]]] | None = None,
    ) -> dict[str, Any]:
        """The answer to a request. ``first`` is what the process must be told before, with a name
        for it: it is told once.

        Raises:
            TooMuchError: it went beyond a limit; `EndedError` where that is not certain.
            Interrupted: ``cancelled`` returned true.
            LocalspecError: the process cannot be started.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            if first is not None and first[0] != self._knows:
                self._answer(first[1](), cancelled)
                self._knows = first[0]
            return self._answer(request, cancelled)

    def close(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _start(self) -> None:
        self.close()
        command, environment = children.command(self._module)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is ours to act on
            )
        except OSError as error:
            raise LocalspecError(
                f"cannot start the process that {self._task}: {defects.why(error)}"
            ) from None
        self._process, self._fresh, self._answers = process, True, queue.SimpleQueue()
        self._knows = None

    def _answer(self, request: Mapping[str, Any], cancelled: Cancelled) -> dict[str, Any]:
        process = self._process
        assert process is not None
        try:
            line = self._exchange(process, request, cancelled)
        except BaseException:
            self.close()
            raise
        if not line:  # it has ended: by its alarm, or because memory was refused
            self.close()
            if process.returncode in _FROM_OUTSIDE:
                raise EndedError(f"the process that {self._task} was ended from outside")
            raise TooMuchError(self._bounds().told)
        self._fresh = False
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        request: Mapping[str, Any],
        cancelled: Cancelled,
    ) -> bytes:
        """The line of the answer; b"" where the process ended."""
        answers, bounds = self._answers, self._bounds()
        # A thread, since a pipe blocks both ways: a long request, and an answer that never comes.
        threading.Thread(target=_talk, args=(process, request, answers), daemon=True).start()
        end = time.monotonic() + bounds.seconds + (bounds.starting if self._fresh else 1.0)
        while True:
            try:
                return answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if cancelled():
                    raise Interrupted(f"interrupted while a process {self._task}") from None
                if _taken(process.pid) > bounds.memory:
                    raise TooMuchError(bounds.told) from None
                if time.monotonic() > end:
                    raise EndedError(bounds.told) from None


class BoundedPool:
    """A few such processes, so that a request that takes long does not hold up the next one. One
    is kept; the others end when nothing is left for them.
    """

    def __init__(self, make: Callable[[], BoundedProcess], most: int) -> None:
        self._make = make
        self._most = most
        self._changed = threading.Condition()
        self._idle: list[BoundedProcess] = []
        self._used: set[BoundedProcess] = set()

    def ask(
        self,
        request: Mapping[str, Any],
        cancelled: Cancelled,
        first: tuple[str, Callable[[], Mapping[str, Any]]] | None = None,
    ) -> dict[str, Any]:
        """As `BoundedProcess.ask`; waits while all are in use."""
        process = self._taken(cancelled)
        try:
            return process.ask(request, cancelled, first)
        finally:
            with self._changed:
                self._used.discard(process)
                spare = process if self._idle else None
                if spare is None:
                    self._idle.append(process)
                self._changed.notify()
            if spare is not None:
                spare.close()

    def close(self) -> None:
        """End the processes that nobody waits for."""
        with self._changed:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def _taken(self, cancelled: Cancelled) -> BoundedProcess:
        with self._changed:
            while not self._idle and len(self._used) >= self._most:
                self._changed.wait(_LOOK_SECONDS)
                if cancelled():
                    raise Interrupted("interrupted while other requests were looked at")
            process = self._idle.pop() if self._idle else self._make()
            self._used.add(process)
            return process


def _talk(
    process: subprocess.Popen[bytes], request: Mapping[str, Any], answers: queue.SimpleQueue[bytes]
) -> None:
    line = b""
    with contextlib.suppress(OSError, ValueError):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    answers.put(line if line.endswith(b"\n") else b"")


def _taken(pid: int) -> int:
    """Bytes that a process holds: not every system obeys a limit of address space."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
