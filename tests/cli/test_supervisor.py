"""How a supervised command ends: by a signal while it waits, whichever of its threads the kernel
gives that to; with its terminal; and by a native library that calls exit().

Two signals at once, as a group's own and the one that the supervising process passes on, are the
rule in which another thread takes them (25 of 40 in a program with six sleeping threads). The main
thread, which alone runs Python's handlers, then waits on.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="commands are contained on Linux only"
)

ROOT = Path(__file__).parent.parent.parent
_PROGRAM = """
import signal, sys, threading, time
import click
from localspec.cli import containment, interrupt

interrupt.watch()
with click.Context(click.Command("chat"), obj=True):
    containment.contain()
for _ in range(6):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
try:
    with interrupt.CtrlC() as ctrl_c, ctrl_c.raising():
        signal.pthread_sigmask(signal.SIG_BLOCK, [{blocked}])
        print("waiting", flush=True)
        {wait}
except KeyboardInterrupt:
    sys.exit(interrupt.exit_code(130))
"""
_READ, _LOCK = "sys.stdin.buffer.readline()", "threading.Event().wait()"
_ALL = "signal.SIGINT, signal.SIGTERM, *interrupt.PASSED_AS.values()"
_PASSED = "*interrupt.PASSED_AS.values()"


def started(wait: str, blocked: str = "") -> subprocess.Popen[bytes]:
    """A supervised program in a group of its own, whose main thread waits. It is never given the
    signals ``blocked``: another thread takes them.
    """
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(wait=wait, blocked=blocked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"waiting\n"
    return program


def ended(program: subprocess.Popen[bytes]) -> int | None:
    """The exit code; None if it waits on."""
    with program:
        try:
            return program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return None


@pytest.mark.parametrize("wait", [_READ, _LOCK])
@pytest.mark.parametrize(("blocked", "send"), [(_ALL, os.killpg), (_PASSED, os.kill)])
def test_a_signal_that_another_thread_took_ends_a_wait(
    wait: str, blocked: str, send: Callable[[int, int], None]
) -> None:
    program = started(wait, blocked)
    send(program.pid, signal.SIGTERM)
    assert ended(program) == 143


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_group_is_never_lost(number: signal.Signals, code: int) -> None:
    """Where each is lost once in two, as they were, all twelve arrive once in 4,000 runs."""
    programs = [started(wait) for wait in (_READ, _LOCK) for _ in range(6)]
    for program in programs:
        os.killpg(program.pid, number)
    assert [ended(program) for program in programs] == [code] * len(programs)


@pytest.mark.parametrize("wait", [_READ, _LOCK])
def test_a_session_leader_ends_with_its_terminal(wait: str) -> None:
    """The kernel tells the leader of the session alone; who reads finds the end by itself, too."""
    program = _PROGRAM.format(wait=wait, blocked="")
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        os.execv(sys.executable, [sys.executable, "-c", program])
    assert os.read(terminal, 100).startswith(b"waiting")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGHUP


_ENDING = """
import ctypes, os, signal, sys
import click
from localspec.cli import containment, interrupt
from localspec.core.processes import activity

with click.Context(click.Command("run"), obj=True):
    containment.contain()
activity.doing("loading a.gguf")
{end}
"""
_EXIT = "os.write(2, b'{words}\\n'); ctypes.CDLL(None).exit({code})"


def ending(end: str) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-c", _ENDING.format(end=end)]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "no more processes and threads may be started here, and a native library ended",
        ),
        (
            "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
            "this machine ran out of memory, and a native library ended the program while loading",
        ),
        ("libx: no luck", "a native library ended the program while loading a.gguf: libx: no luck"),
    ],
)
def test_a_native_library_that_ends_the_program_is_told_with_its_words(
    words: str, told: str
) -> None:
    done = ending(_EXIT.format(words=words, code=1))
    assert done.returncode == 1
    assert done.stderr.startswith(f"localspec: {told}")
    assert done.stderr.count("\n") == 1
    assert "native.log; " in done.stderr


def test_a_native_library_that_ends_the_program_never_succeeds() -> None:
    done = ending(_EXIT.format(words="", code=0))
    assert done.returncode == 1
    assert done.stderr.startswith("localspec: a native library ended the program")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(5)", 5),
        ("pass", 0),
        ("with interrupt.CtrlC(): [signal.raise_signal(n) for n in (2, 15)]; sys.exit(130)", 130),
        ("interrupt._early = True\nwith interrupt.CtrlC(): signal.raise_signal(2)", 130),
    ],
)
def test_an_end_of_our_own_is_not_taken_for_that_of_a_library(end: str, code: int) -> None:
    done = ending(end)
    assert (done.returncode, done.stderr) == (code, "")
