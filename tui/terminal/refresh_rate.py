"""How often the screen is refreshed: as often as helps reading, and no more."""

from __future__ import annotations

import os
import time

from localspec.core.events import ModelInfo

_USUAL = 16
"""Refreshes a second at which the text appears to flow."""
_BUSY = 10
"""Rate while the model computes on every processor: each refresh takes one of them, and the others
wait for it. At sixteen the model lost a twentieth of its speed."""
FIGURES_SECONDS = 0.25
"""Seconds between two refreshes of the figures. They are not read faster, and drawing them
together with the text, which is far away, composes most of the screen."""


_WORK_SECONDS, _REST_SECONDS = 0.001, 0.003
"""A thread that typesets text alternates between these. Without rests it takes half of the event
loop's time, and each of the loop's stalls is twice as long."""


class Rests:
    """Called often by a thread that works for long; pauses it now and then."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        """Sleep where the thread has worked long enough."""
        if time.perf_counter() - self._since >= _WORK_SECONDS:
            time.sleep(_REST_SECONDS)
            self._since = time.perf_counter()


def refreshes_per_second(info: ModelInfo | None) -> int:
    """How often to refresh while this model answers."""
    if info is not None and info.backend == "cpu" and info.threads >= _processors():
        return _BUSY
    return _USUAL


def _processors() -> int:
    """Number of processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
