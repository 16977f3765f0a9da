"""`localspec chat` in a pseudo-terminal, with the time at which everything was drawn."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import psutil

from faults.limits import ROOT

_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>()][A-Z0-9]?)")


class SilentError(Exception):
    """A text that was waited for did not come."""


class Terminal:
    """One interface, from its start to its end."""

    def __init__(self, home: Path, *words: str, temporary: Path | None = None) -> None:
        """Start it on models of ``home``; ``temporary`` is where its temporary files go."""
        import fcntl

        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
            os.chdir(ROOT)
            os.environ |= {
                "TERM": "xterm-256color",
                "TEXTUAL_ANIMATIONS": "none",
                "LOCALSPEC_HOME": str(home),
                "HF_HOME": str(home / "hf"),
                "PYTHONPATH": str(ROOT),
            }
            if temporary is not None:
                os.environ["TMPDIR"] = str(temporary)
            os.execv(sys.executable, [sys.executable, "-P", "-m", "localspec", "chat", *words])
        self.drawn: list[tuple[float, str]] = []
        """When what was drawn, without escape sequences."""
        self._bytes = b""
        self._ended = False

    def read(self, seconds: float) -> None:
        """Take what is drawn in the next seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._ended:
            if not select.select([self._fd], [], [], min(left, 0.1))[0]:
                continue
            try:
                self._bytes += os.read(self._fd, 1 << 16)
            except OSError:  # the other side is closed
                self._ended = True
            cut = self._bytes.rfind(b"\x1b")  # may be half a sequence
            cut = len(self._bytes) if cut < len(self._bytes) - 64 else cut
            text, self._bytes = self._bytes[:cut], self._bytes[cut:]
            plain = _SEQUENCE.sub("", text.decode("utf-8", "replace"))
            if plain:
                self.drawn.append((time.monotonic(), plain))

    def runs(self) -> bool:
        """Whether it has not ended."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        return False

    def mark(self) -> int:
        """A place in what was drawn."""
        return len(self.drawn)

    def since(self, mark: int, until: float = float("inf")) -> str:
        """The drawing from a mark on, until a time."""
        return "".join(text for at, text in self.drawn[mark:] if at <= until)

    def wait(self, mark: int, *texts: str, seconds: float = 120) -> str:
        """The first of the texts that is drawn after a mark."""
        end = time.monotonic() + seconds
        while True:
            drawn = self.since(mark)
            for text in texts:
                if text in drawn:
                    return text
            if time.monotonic() > end or self._ended:
                raise SilentError(f"none of {texts} is drawn: {drawn[-300:]!r}")
            self.read(0.1)

    def type(self, keys: str) -> None:
        """Send keys."""
        with contextlib.suppress(OSError):
            os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Give it another size."""
        import fcntl

        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def engine(self) -> psutil.Process | None:
        """The engine process, if there is one."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    running = child.status() != psutil.STATUS_ZOMBIE
                    if running and "localspec.engine" in child.cmdline():
                        return child
        return None

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        end = time.monotonic() + 60
        while True:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._fd)
                return os.waitstatus_to_exitcode(status)
            if self._ended:
                time.sleep(0.05)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                os.close(self._fd)
                raise SilentError("it does not end")
