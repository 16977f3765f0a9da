"""Ctrl-C: the first ends the reply and keeps it, the second ends the program."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class CtrlC:
    """While active, Ctrl-C sets a flag and calls ``on_first`` instead of raising anywhere."""

    def __init__(self) -> None:
        self.pressed = False
        self.on_first: Callable[[], None] | None = None
        self._previous: Any = None

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed:
            os._exit(130)
        self.pressed = True
        if self.on_first is not None:
            self.on_first()

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
