"""Ctrl-C: the first ends the reply and keeps it, the second ends the program."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

_early = False
"""Ctrl-C was pressed before a command was ready for it."""


def watch() -> None:
    """From the start on: Ctrl-C raises as usual, and is remembered.

    Raised in the middle of an import, KeyboardInterrupt can be swallowed by whoever is importing;
    the command then sees it when it asks.
    """

    def handle(_signal: int, _frame: FrameType | None) -> None:
        global _early  # noqa: PLW0603 - a process has one Ctrl-C
        _early = True
        raise KeyboardInterrupt

    global _early  # noqa: PLW0603 - likewise
    _early = False
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handle)


class CtrlC:
    """While active, Ctrl-C sets a flag and calls ``on_first`` instead of raising anywhere."""

    def __init__(self) -> None:
        self.pressed = _early
        self.on_first: Callable[[], None] | None = None
        self._previous: Any = None
        self._raises = False

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed:
            os._exit(130)
        self.pressed = True
        if self._raises:
            raise KeyboardInterrupt
        if self.on_first is not None:
            self.on_first()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Around a wait that only an exception can end: Ctrl-C raises KeyboardInterrupt."""
        self._raises = True
        try:
            if self.pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def __enter__(self) -> Self:
        """Take Ctrl-C over."""
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        signal.signal(signal.SIGINT, self._previous)
