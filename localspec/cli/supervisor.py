"""The parent of a command's process: waits, passes signals on, and reports a crash."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from localspec.cli.interrupt import NUDGE, PASSED_AS
from localspec.cli.streams import WaitingFile
from localspec.core.errors import LocalspecError
from localspec.core.files import paths
from localspec.core.files.private import opener
from localspec.core.processes import activity, crash

WATCHED = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
"""Taken one by one in the parent. SIGTSTP is not among them: a terminal stops both processes."""
_OURS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE}
"""Signals that end a process on request; any other death is a crash."""
_TAIL = 1 << 16
"""Bytes of native text that are kept of one process."""
_LOG_BYTES = 1 << 20
"""Size at which the log is moved aside."""
_APART_S = 0.05
"""Seconds between a signal that may have reached the child too and the same one passed on. Of two
signals at once another thread takes the second, or both: in native code it may fail a system call.
"""
_NUDGES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds from a signal to the first nudge of the child, and from each nudge to the next. Its main
thread waits on if another thread took the signal, or if that came just before the wait.
"""
_DRAIN_S = 0.5
"""Seconds for the rest of the pipe; a grandchild may hold it open."""
HELD_BYTES = 1 << 20
"""Most bytes of a text that is printed after a crash."""
NATIVE_LOG = "native.log"


class Record:
    """Memory that parent and child share. Pages that are never touched take no memory."""

    def __init__(self) -> None:
        """Make one before the fork."""
        self._memory = mmap.mmap(-1, activity.SIZE + 1 + 2 * (8 + HELD_BYTES))

    def share(self) -> None:
        """In the child: name steps here."""
        activity.share(self._memory)

    def last(self) -> activity.Last:
        """In the parent: the child's last step, and how it ended."""
        return activity.last(self._memory)

    def hold(self, text: bytes) -> None:
        """In the child: keep text, at once or not at all; longer than 1 MiB is left out."""
        if len(text) > HELD_BYTES:
            return
        other = 1 - self._memory[activity.SIZE]
        at = self._slot(other)
        self._memory[at : at + 8] = len(text).to_bytes(8, "little")
        self._memory[at + 8 : at + 8 + len(text)] = text
        self._memory[activity.SIZE] = other

    def held(self) -> bytes:
        """In the parent: the text kept last."""
        at = self._slot(self._memory[activity.SIZE])
        length = int.from_bytes(self._memory[at : at + 8], "little")
        return bytes(self._memory[at + 8 : at + 8 + length])

    @staticmethod
    def _slot(index: int) -> int:
        return activity.SIZE + 1 + index * (8 + HELD_BYTES)


class Supervisor:
    """Waits for one child."""

    def __init__(self, child: int, native: int, record: Record) -> None:
        """``native`` is where the child's native stderr can be read."""
        self._child, self._native, self._record = child, native, record
        self._tail = b""
        self._hung_up = False
        self._reader = threading.Thread(target=self._read, name="native stderr", daemon=True)

    def wait(self) -> int:
        """Until the child has ended; its exit code, 1 after a crash."""
        self._reader.start()
        nudges: Iterator[float] = iter(())
        while True:
            pause = next(nudges, None)
            info = (
                signal.sigwaitinfo(WATCHED)
                if pause is None
                else signal.sigtimedwait(WATCHED, pause)
            )
            if info is None:
                os.kill(self._child, NUDGE)
            elif info.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(self._child, os.WNOHANG)
                if ended:
                    return self._end(status)
            else:
                hung_up = info.si_signo == signal.SIGHUP  # tells the leader of a session alone
                self._hung_up |= hung_up and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
                if hung_up or info.si_code <= 0:  # sent to this process; a key reaches both
                    time.sleep(_APART_S)
                    os.kill(self._child, PASSED_AS.get(info.si_signo, info.si_signo))
                nudges = iter(_NUDGES_S)

    def _read(self) -> None:
        while chunk := os.read(self._native, _TAIL):
            self._tail = (self._tail + chunk)[-_TAIL:]

    def _end(self, status: int) -> int:
        self._reader.join(_DRAIN_S)
        native = self._tail.decode("utf-8", "replace")
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        number = next((n for n, passed in PASSED_AS.items() if passed == number), number)
        last = self._record.last()
        crashed = number not in _OURS if number else not last.ended
        logged = crash.recent_lines(paths.state_dir() / paths.LLAMA_LOG) if number else ""
        what = crash.explain(number, last.doing, native, logged) if number or crashed else "ended"
        log = _log(what, native) if native or crashed else None
        held = self._record.held()
        if held or crashed:
            _print(1, ("\n" * (last.line_open and os.isatty(1))).encode() + held)
        if self._hung_up and not crashed:  # the child may have found its terminal gone before
            number = signal.SIGHUP
        if number in _OURS:
            _end_by(number)
        if not crashed:
            return os.waitstatus_to_exitcode(status)
        newline = "\n" * (last.line_open and os.isatty(2) and not os.isatty(1))
        place = f"the log is {log}" if log is not None else "no log could be written"
        failure = crash.device_failure(logged, native) if number in {0, signal.SIGABRT} else ""
        sentence = f"{what}; {place}; {crash.advice(number, last.doing, failure)}"
        encoding = sys.stderr.encoding or "utf-8"
        _print(2, f"{newline}localspec: {sentence}\n".encode(encoding, "replace"))
        return 1


def _log(what: str, native: str) -> Path | None:
    """Add to the log; None where that is not possible."""
    try:
        path = paths.make(paths.state_dir()) / NATIVE_LOG
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        command = " ".join(map(crash.harmless, sys.argv[1:2]))
        lines = [f"{begun} UTC, {command}: {what}", *map(crash.visible, native.splitlines())]
        entry = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        with open(path, "ab", opener=opener) as log:
            log.write(entry)
    except (OSError, LocalspecError):
        return None
    return path


def _end_by(number: int) -> None:
    """Die of the same signal, so that a shell sees what happened; without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _print(descriptor: int, data: bytes) -> None:
    """Write all of it, unless the reader is gone."""
    with contextlib.suppress(OSError), WaitingFile(descriptor, "w", closefd=False) as file:
        while data:
            data = data[file.write(data) :]
