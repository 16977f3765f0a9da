"""How often the screen looks at what has come: as often as helps reading, and no more."""

from __future__ import annotations

import os

from localspec.events import ModelInfo

_USUAL = 16
"""Looks a second that read as flowing text."""
_BESIDE = 10
"""Where the model computes on every processor, each look takes one of them from it for a while,
and the others wait: at sixteen the model lost a twentieth of its speed."""
FIGURES_SECONDS = 0.25
"""Between two pictures of the figures: nobody reads them faster, and they lie far from the text, so
that with them most of the screen is gone through."""


def looks_per_second(info: ModelInfo | None) -> int:
    """How often to look while this model answers."""
    if info is not None and info.backend == "cpu" and info.threads >= _processors():
        return _BESIDE
    return _USUAL


def _processors() -> int:
    """Those that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
