"""The driver of the terminal: it outlives a terminal that is closed, and bytes that are no text."""

from __future__ import annotations

import codecs
import contextlib
import functools
from typing import IO, Any

from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver


class Lasting:
    """A file that takes what is written also when nobody is there any more.

    Textual's thread that writes to the terminal ends with the first write that fails. Its queue
    then fills, and whoever puts something more into it waits for ever: the program would go on
    without a terminal. It draws anew on SIGCONT, which comes with the end of a terminal too.
    """

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


def _forgiving(encoding: str) -> Any:
    """A decoder for which no bytes are wrong."""
    return functools.partial(codecs.getincrementaldecoder(encoding), errors="replace")


def _raise(error: Exception) -> None:
    raise error


class TerminalDriver(LinuxDriver):
    """Textual's own, on a file that lasts."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._file: Any = Lasting(self._file)

    def run_input_thread(self) -> None:
        """Read keys. A text of another encoding that is pasted has signs for what is not known."""
        vars(linux_driver)["getincrementaldecoder"] = _forgiving
        super().run_input_thread()

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:  # noqa: BLE001 - raised again where somebody says it
            self._app.call_later(_raise, error)
