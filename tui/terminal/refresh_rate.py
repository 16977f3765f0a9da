"""How often the screen looks at what has come: as often as helps reading, and no more."""

from __future__ import annotations

import os
import time

from localspec.core.events import ModelInfo

_USUAL = 16
"""Looks a second that read as flowing text."""
_BESIDE = 10
"""Where the model computes on every processor, each look takes one of them from it for a while,
and the others wait: at sixteen the model lost a twentieth of its speed."""
FIGURES_SECONDS = 0.25
"""Between two pictures of the figures: nobody reads them faster, and they lie far from the text, so
that with them most of the screen is gone through."""


_WORK_SECONDS, _REST_SECONDS = 0.001, 0.003
"""What a thread that sets text does in turn. Without rests it would take half of the time that the
event loop wants, and each of the loop's stalls would be twice as long."""


class Rests:
    """Called often by a thread that works for long, it lets it rest now and then."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        """Rest if it is time to."""
        if time.perf_counter() - self._since >= _WORK_SECONDS:
            time.sleep(_REST_SECONDS)
            self._since = time.perf_counter()


def looks_per_second(info: ModelInfo | None) -> int:
    """How often to look while this model answers."""
    if info is not None and info.backend == "cpu" and info.threads >= _processors():
        return _BESIDE
    return _USUAL


def _processors() -> int:
    """Those that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
