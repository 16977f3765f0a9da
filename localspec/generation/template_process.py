"""The process that renders chat templates, as the one who needs a prompt sees it.

A template comes with a downloaded file and is a program: it may loop for ever or ask for all memory
there is. It runs in a process of its own, one for all templates, which is ended when it takes too
long, takes too much, or nobody wants its answer any more; the next request starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from localspec.errors import Interrupted, LocalspecError
from localspec.generation.template_child import MEMORY, SECONDS
from localspec.processes import children

_LOOK_SECONDS = 0.05
_STARTING_SECONDS = 30.0
"""More for the first answer, on a machine that is busy."""


class TooMuchError(Exception):
    """A request took more time or memory than it may; the text says which."""


class TemplateProcess:
    """Starts the process when it is needed; one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._fresh = True

    def ask(self, request: dict[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The answer to a request, see `localspec.generation.template_child`.

        Raises:
            TooMuchError: it went beyond a limit.
            Interrupted: ``cancelled`` returned true.
            LocalspecError: the process cannot be started.
        """
        with self._lock:
            process = self._running()
            try:
                line = self._exchange(process, request, cancelled)
            except BaseException:
                self.close()
                raise
            if not line:  # it has ended: by its alarm, or because memory was refused
                self.close()
                raise TooMuchError(self._limits())
            self._fresh = False
            answer: dict[str, Any] = json.loads(line)
            return answer

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

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        command, environment = children.command("localspec.generation.template_child")
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
                f"cannot start the process that renders chat templates: {error.strerror}"
            ) from None
        self._process, self._fresh, self._answers = process, True, queue.SimpleQueue()
        return process

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        request: dict[str, Any],
        cancelled: Callable[[], bool],
    ) -> bytes:
        """The line of the answer; b"" where the process ended."""
        answers = self._answers
        # A thread, since a pipe blocks both ways: a long request, and an answer that never comes.
        threading.Thread(target=_talk, args=(process, request, answers), daemon=True).start()
        end = time.monotonic() + SECONDS + (_STARTING_SECONDS if self._fresh else 1.0)
        while True:
            try:
                return answers.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if cancelled():
                    raise Interrupted("interrupted while the chat template ran") from None
                if time.monotonic() > end or _taken(process.pid) > MEMORY:
                    raise TooMuchError(self._limits()) from None

    @staticmethod
    def _limits() -> str:
        return f"it takes more than {SECONDS:.0f} seconds or {MEMORY >> 20} MB of memory"


def _talk(
    process: subprocess.Popen[bytes], request: dict[str, Any], answers: queue.SimpleQueue[bytes]
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


@functools.cache
def shared() -> TemplateProcess:
    """The one of this process; it ends with it."""
    found = TemplateProcess()
    atexit.register(found.close)
    return found


__all__ = ["TemplateProcess", "TooMuchError", "shared"]
