"""Loads a pair for a command line, and shows what is done before, once, on the first start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.cli.output import say_over

if TYPE_CHECKING:
    from localspec.core.events import Loading
    from localspec.core.options import Options
    from localspec.runtime import Runtime


def runtime(options: Options, cancelled: Callable[[], bool], *, remeasure: bool = False) -> Runtime:
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
