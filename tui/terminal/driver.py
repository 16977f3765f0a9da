"""A terminal driver that survives a closed terminal, input that is not UTF-8, and any paste."""

from __future__ import annotations

import codecs
import contextlib
import errno
import functools
import os
import select
import termios
import tty
from collections.abc import Callable
from typing import IO, Any

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

from tui.terminal.pastes import PasteFilter

_HUNG_UP = 129
"""Exit code of a program that SIGHUP ends."""


class Lasting:
    """A text file that ignores writes to a closed terminal.

    Textual's thread that writes to the terminal ends with the first write that fails. Its queue
    then fills, and every writer waits for ever: the program would run on
    without a terminal. It draws again on SIGCONT, which comes with the end of a terminal too.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write, unless the terminal is closed."""
        with contextlib.suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        """Flush, unless the terminal is closed."""
        with contextlib.suppress(OSError, ValueError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Decoder:
    """Accepts any bytes, and any paste; an empty read is the end of the terminal.

    Textual's thread would read on for ever, and the process could not end: where a terminal is
    closed, SIGCONT may start such a thread after the interface has ended.
    """

    def __init__(self, encoding: str, hung_up: Callable[[], None]) -> None:
        self._inner = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._pastes = PasteFilter()
        self._hung_up = hung_up

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text of some bytes; "" is no end, but more have to come."""
        if not data:
            self._hung_up()
        return self._pastes.clean(self._inner.decode(data, final))


def _typed_ahead(terminal: int) -> tuple[str, list[Any] | None]:
    """What was typed before the interface read its keys, as it would have read it, and the
    attributes that the terminal had; None where it keeps them.

    Until now the terminal made a line feed of Enter, which is another key to the interface. It does
    so no longer: Textual reads keys a while after this.
    """
    with contextlib.suppress(OSError):  # not the terminal that controls this process
        if os.tcgetpgrp(terminal) != os.getpgrp():  # in its background, where Textual stops
            return "", None
    try:
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal, termios.TCSANOW)
        attributes = termios.tcgetattr(terminal)
        attributes[tty.IFLAG] &= ~termios.ICRNL
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    except termios.error:  # no terminal
        return "", None
    typed = b""
    while select.select([terminal], [], [], 0)[0] and (more := os.read(terminal, 1 << 12)):
        typed += more
    return typed.decode("utf-8", "replace").replace("\n", "\r"), before


def _raise(error: Exception) -> None:
    raise error


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux, on a `Lasting` file."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._file: Any = Lasting(self._file)
        self._early, self._has_terminal, self._giving_back = "", False, False

    def start_application_mode(self) -> None:
        """Take the terminal, and the keys that were typed before. Where it was not given back, as
        with a SIGCONT alone, that is done first: its modes now are those of the interface.
        """
        if self._giving_back:  # another SIGCONT meanwhile
            return
        if self._has_terminal:
            self._giving_back = True
            try:
                self.suspend_application_mode()
            finally:
                self._giving_back = False
            self._must_signal_resume = True  # all is drawn again
        writer = self._writer_thread
        self._early, before = _typed_ahead(self.fileno)
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except BaseException:
            if before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, before)
            raise
        if before is not None:
            self.attrs_before = before
        self._has_terminal = self._writer_thread is not writer

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was."""
        self._has_terminal = False
        super().stop_application_mode()

    def _hung_up(self) -> None:
        """End the interface: its terminal is gone. SIGHUP tells so only where the terminal is the
        one that controls this process.
        """
        if not self.exit_event.is_set():
            self.exit_event.set()
            self._app.call_later(functools.partial(self._app.exit, return_code=_HUNG_UP))

    def run_input_thread(self) -> None:
        """Read keys; invalid bytes of a paste become replacement characters."""
        vars(linux_driver)["getincrementaldecoder"] = lambda encoding: functools.partial(
            _Decoder, encoding, self._hung_up
        )
        early, self._early = self._early, ""
        for message in XTermParser().feed(PasteFilter().clean(early)):
            self.process_message(message)
        super().run_input_thread()

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except OSError as error:
            if error.errno == errno.EIO:
                self._hung_up()
            else:
                self._app.call_later(_raise, error)
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self._app.call_later(_raise, error)
