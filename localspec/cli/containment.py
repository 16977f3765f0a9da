"""A supervising parent process, which reports a crash of llama.cpp in one line.

`contain` forks before numpy and llama.cpp are imported, which costs some milliseconds (9 to
20 measured on a busy machine). The child runs the command. The parent only waits: it passes
signals on, keeps the end of what native code writes to stderr, and reports in one line how the
child died, if it did, also where a native library called exit(). Shared memory has the last step of
the child, whether it ended by itself, and measurements that it has not printed.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import io
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from localspec.cli import interrupt
from localspec.cli.streams import WaitingFile
from localspec.core.processes import activity

if TYPE_CHECKING:
    from localspec.cli.supervisor import Record

_record: Record | None = None
"""The memory shared with the supervising parent, if there is one."""


def contained() -> bool:
    """Whether the running command was started as a program, which may fork."""
    return bool(click.get_current_context().find_root().obj)


def contain() -> None:
    """Continue in a child process; the parent ends with the child's exit code, or 1 if it crashed.

    Does nothing in a command that other code has called, on macOS, whose frameworks do not survive
    a fork, and where there is no fork.
    """
    if not contained() or sys.platform != "linux" or _record is not None:
        return
    from localspec.cli.supervisor import WATCHED, Record, Supervisor

    record = Record()
    sys.stdout.flush()
    sys.stderr.flush()
    native, native_in = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*WATCHED, *interrupt.PASSED_AS.values()})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(native_in)
        # Without the interpreter's own end, which takes time: nothing of it was used.
        os._exit(Supervisor(child, native, record).wait())
    os.close(native)
    _share(record)  # before a signal may end it, which is an end of our own
    interrupt.expect_passed_on()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _die_with(parent)
    _divert(native_in)


def _share(record: Record) -> None:
    global _record  # noqa: PLW0603 - a process has one parent
    _record = record
    record.share()
    atexit.register(activity.ended)  # not called where a native library calls exit()
    activity.doing("starting llama.cpp")


def _die_with(parent: int) -> None:
    """Let the kernel end this process when its parent is killed."""
    from localspec.core.processes.children import end_with_parent

    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _divert(native: int) -> None:
    """Redirect stderr of native code to the parent; our own messages keep their stderr."""
    ours = os.dup(2)
    encoding, errors = sys.stderr.encoding, sys.stderr.errors
    raw = WaitingFile(ours, "w")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=True
    )
    os.dup2(native, 2)
    os.close(native)
    faulthandler.enable(file=2, all_threads=False)


class Unfinished(contextlib.AbstractContextManager["Unfinished"]):
    """Text for stdout in case the command ends early: what was measured so far.

    It is printed if the block ends with an error of any kind or an interruption, and by the
    supervising parent if this process crashes.
    """

    def __init__(self) -> None:
        self._text = ""

    def hold(self, text: str) -> None:
        """Replace the text."""
        self._text = text
        if _record is not None:
            _record.hold(text.encode("utf-8", "replace"))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Print the text after an error or an interruption."""
        from localspec.cli.output import write

        text = self._text
        self.hold("")
        if text and kind is not None:
            newline = "\n" * (activity.within_line() and sys.stdout.isatty())
            write(newline + text)
