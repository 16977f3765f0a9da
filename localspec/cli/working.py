"""Progress on stderr: while a pair is loaded, and of commands that measure for minutes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from localspec.cli.interrupt import CtrlC
from localspec.cli.output import say_over, tell
from localspec.core.errors import Interrupted
from localspec.core.interrupt import Cancelled

UNFINISHED = "interrupted; what was measured is incomplete"

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


def open_runtime(options: Options, cancelled: Cancelled, *, remeasure: bool = False) -> Runtime:
    """See `localspec.runtime.Runtime.open`. What has no bar, such as compiling kernels, would be a
    silent minute: a terminal shows its name.
    """
    from localspec.runtime import Runtime

    shown = False

    def on_event(loading: Loading) -> None:
        nonlocal shown
        if loading.fraction is None:
            say_over(loading.text)
            shown = True

    try:
        return Runtime.open(options, on_event, cancelled, remeasure=remeasure)
    finally:
        if shown:
            say_over("")
