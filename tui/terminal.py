"""The driver of the terminal, which outlives that the terminal is closed.

Textual's thread that writes to the terminal ends with the first write that fails. Its queue then
fills, and whoever puts something more into it waits for ever: the program would go on without a
terminal (that it is told of a closed one by SIGCONT too, and starts to draw anew, sees to that).
"""

from __future__ import annotations

import contextlib
from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver


class Lasting:
    """A file that takes what is written also when nobody is there any more."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write, or do nothing."""
        with contextlib.suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        """Flush, or do nothing."""
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalDriver(LinuxDriver):
    """Textual's own, on a file that lasts."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._file: Any = Lasting(self._file)
