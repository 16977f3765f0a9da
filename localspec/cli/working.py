"""Progress on stderr: while a pair is loaded, and of commands that measure for minutes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from localspec.cli.interrupt import CtrlC
from localspec.cli.output import say_over, tell
from localspec.core.errors import Interrupted
from localspec.core.interrupt import Cancelled

UNFINISHED = "interrupted; what was measured is incomplete"
_MOMENT_S = 1.0
"""Seconds of loading that are not worth a line."""

if TYPE_CHECKING:
    from localspec.core.events import Loading
    from localspec.core.options import Options
    from localspec.runtime import Runtime


class Working:
    """One line that changes on a terminal; elsewhere a line for each stage, as it begins."""

    def __init__(self, ctrl_c: CtrlC) -> None:
        """Nothing is shown yet."""
        self._ctrl_c = ctrl_c
        self._stage = ""

    def tell(self, stage: str, detail: str = "") -> None:
        """Show the stage, and on a terminal how far it is.

        Raises:
            Interrupted: the user pressed Ctrl-C, or SIGTERM came.
        """
        if self._ctrl_c.pressed:
            raise Interrupted(UNFINISHED)
        if sys.stderr.isatty():
            say_over(f"{stage}{', ' if detail else ''}{detail}")
        elif stage != self._stage:
            tell(stage)
        self._stage = stage

    def clear(self) -> None:
        """Clear the line, before output."""
        say_over("")


class _LoadingLine:
    """A line on a terminal about what takes time while a pair is loaded."""

    def __init__(self, *, share: bool) -> None:
        self._share = share
        self._began = time.monotonic()
        self._shown = ""

    def take(self, loading: Loading) -> None:
        """Show a step. What has no bar, such as compiling kernels, would be a silent minute; how
        far a file is matters where it takes longer than a moment.
        """
        soon = time.monotonic() - self._began < _MOMENT_S
        if loading.fraction is not None and (soon or not self._share):
            return
        if loading.text != self._shown:
            say_over(loading.text)
            self._shown = loading.text

    def clear(self) -> None:
        """Clear the line, if there is one."""
        if self._shown:
            say_over("")


def open_runtime(options: Options, cancelled: Cancelled, *, share: bool = True) -> Runtime:
    """See `localspec.runtime.Runtime.open`. A terminal shows what takes time, with ``share`` also
    how much of a file is loaded.
    """
    from localspec.runtime import Runtime

    line = _LoadingLine(share=share)
    try:
        return Runtime.open(options, line.take, cancelled)
    finally:
        line.clear()
