"""A pseudo-terminal that is read as fast as the program in it draws."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[3]
ROWS, COLUMNS = 40, 120


def resize(columns: int, terminal: int = 1) -> None:
    """Give a terminal another width."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """A command's drawing in a terminal, and the time and bytes of it."""

    seconds: float
    cpu: float
    """Seconds of CPU of the command's own process, without its children."""
    drawn: bytes


def in_terminal(
    command: Sequence[str], until: Callable[[bytes], bool] | None = None, seconds: float = 120
) -> Shown:
    """Run a command in a pseudo-terminal and read what it draws.

    It runs to its end, or until the drawing is as wished; then it is ended.
    """
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        resize(COLUMNS, 0)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # starts are measured with compiled files
        os.environ.update(
            TERM="xterm-256color",
            TEXTUAL_ANIMATIONS="none",
            PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'scripts'}",
        )
        os.execv(command[0], list(command))  # noqa: S606 - no shell is wanted
    drawn = bytearray()
    while time.perf_counter() - start < seconds:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:
                break
        if until is not None and until(drawn):
            break
    took = time.perf_counter() - start
    cpu = _cpu(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 15)
    with contextlib.suppress(OSError):  # drain, or the end would wait for a reader
        while select.select([terminal], [], [], 2)[0] and os.read(terminal, 1 << 16):
            pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return Shown(took, cpu, bytes(drawn))


def _cpu(pid: int) -> float:
    """Seconds of CPU of a process, 0 where it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def measured(script: Path, *words: str) -> dict[str, Any]:
    """The result that ``script --inside WORDS... RESULT`` writes, run in a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(script), "--inside", *words, str(result)]
        drawn = in_terminal(command).drawn
        if not result.exists():
            sys.exit(f"bench_interface: {words} gave no result; it said:\n{_plain(drawn)[-2000:]}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def _plain(drawn: bytes) -> str:
    return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)", "", drawn.decode("utf-8", "replace"))
