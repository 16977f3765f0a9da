"""Ctrl-C and SIGTERM: the first ends the reply and keeps it, the second ends the program.

A chat in a terminal goes on after the first Ctrl-C.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

from localspec.core.processes import activity

_early = False
"""Whether Ctrl-C was pressed before a command was ready for it."""
_terminated = False
"""Whether SIGTERM was the interruption."""
_SAME_S = 0.1
"""Seconds within which a second signal is the first one, if it is the same: some programs send
theirs to a process and to its group. Another one is part of one wish: Ctrl-C and SIGTERM end both
the reply, which is kept, and the program.
"""
PASSED_AS: dict[int, int] = {signal.SIGINT: signal.SIGUSR1, signal.SIGTERM: signal.SIGUSR2}
"""The signals by which a supervising parent passes on those that it was sent, which may have been
sent to the group, and so to this process too."""
NUDGE: int = signal.SIGURG
"""The signal by which that parent wakes the main thread where it waits. Python handles signals in
that thread alone, which learns nothing of one that another thread took. Without a handler it is
ignored, so it may come at any time."""
_PASSED_ON_S = 5.0
"""Seconds after a signal within which the same one, passed on, is not another one: the parent may
have to wait for a processor that long."""
_came: dict[int, float] = {}
"""When each signal came by itself last."""
_passing: set[int] = set()
"""Signals that were passed on and are about to come."""
_supervised = False
"""Whether a parent passes signals on."""
_INTERRUPTED, _TERMINATED = 130, 143


def exit_code(code: int) -> int:
    """143 instead of 130 if SIGTERM was the interruption; other codes stay.

    After an interruption the same signal, passed on late, does not end the interpreter in its last
    steps, where it has no handlers any more.
    """
    if code != _INTERRUPTED:
        return code
    if _supervised:
        number = signal.SIGTERM if _terminated else signal.SIGINT
        signal.signal(PASSED_AS[number], signal.SIG_IGN)
    return _TERMINATED if _terminated else code


def expect_passed_on() -> None:
    """A supervising parent passes signals on from now on.

    SIGTERM's is handled once SIGTERM itself is: before, it ends this process in the middle of
    native code, too.
    """
    global _supervised  # noqa: PLW0603 - a process has one parent
    _supervised = True
    signal.signal(NUDGE, lambda _number, _frame: None)
    _handle_passed_on(signal.SIGINT)


def _handle_passed_on(number: int) -> None:
    signal.signal(PASSED_AS[number], lambda _number, _frame: passed_on(number))


def passed_on(number: int) -> None:
    """Do what a signal does that the parent has passed on, unless it came by itself just before."""
    if time.monotonic() - _came.get(number, -math.inf) > _PASSED_ON_S:
        _passing.add(number)
        signal.raise_signal(number)  # handled at once, also within a wait


def _note(number: int) -> float:
    """Note that a signal came; when."""
    now = time.monotonic()
    if number in _passing:
        _passing.remove(number)
    else:
        _came[number] = now
    return now


def watch() -> None:
    """Handle Ctrl-C from the start on: it raises as usual, and is recorded.

    An import may swallow a KeyboardInterrupt that is raised inside it; the command then finds the
    record.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        global _early  # noqa: PLW0603 - a process has one Ctrl-C
        _early = True
        _note(number)
        raise KeyboardInterrupt

    global _early, _terminated  # noqa: PLW0603 - a process has one Ctrl-C
    _early = _terminated = False
    _came.clear()
    _passing.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handle)


class CtrlC:
    """While active, Ctrl-C and SIGTERM set a flag and call ``on_first`` instead of raising."""

    def __init__(self) -> None:
        self.pressed = _early
        self.on_first: Callable[[], None] | None = None
        self._previous: dict[int, Any] = {}
        self._raises = False
        self._number, self._at = 0, -math.inf

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        global _terminated  # noqa: PLW0603 - a process ends once
        now = _note(number)
        at_once = now - self._at < _SAME_S
        if at_once and number == self._number:
            return
        if self.pressed and not at_once:
            activity.ended()
            os._exit(exit_code(_INTERRUPTED))
        _terminated |= number == signal.SIGTERM
        self._number, self._at = number, now
        if self.pressed:
            return
        self.pressed = True
        if self._raises:
            raise KeyboardInterrupt
        if self.on_first is not None:
            self.on_first()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt, for a wait that only an exception can end."""
        self._raises = True
        try:
            if self.pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def forget(self) -> bool:
        """Ctrl-C has ended a reply and nothing else: the next one is a first one again. Returns
        False for SIGTERM, which ends the program.
        """
        if _terminated:
            return False
        self.pressed = False
        return True

    def __enter__(self) -> Self:
        """Install the handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
            if _supervised:
                _handle_passed_on(number)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
