"""The processes that render chat templates, as the one who needs a prompt sees them.

A template comes with a downloaded file and is a program: it runs within limits of time and memory,
see `localspec.core.processes.bounded`.
"""

from __future__ import annotations

import atexit
import functools

from localspec.core.processes.bounded import (
    STARTING_SECONDS,
    BoundedPool,
    BoundedProcess,
    Bounds,
    TooMuchError,
)
from localspec.generation.template_child import MEMORY, SECONDS

_STARTING_SECONDS = STARTING_SECONDS
_MOST = 3
"""Processes: a prompt that takes long must not hold up all others."""


class TemplateProcess(BoundedProcess):
    """Renders one prompt at a time, see `localspec.generation.template_child`."""

    def __init__(self) -> None:
        super().__init__(
            "localspec.generation.template_child",
            "renders chat templates",
            lambda: Bounds(
                SECONDS,
                MEMORY,
                _STARTING_SECONDS,
                f"it takes more than {SECONDS:.0f} seconds or {MEMORY >> 20} MB of memory",
            ),
        )


@functools.cache
def shared() -> BoundedPool:
    """Those of this process; they end with it."""
    found = BoundedPool(TemplateProcess, _MOST)
    atexit.register(found.close)
    return found


__all__ = ["TemplateProcess", "TooMuchError", "shared"]
