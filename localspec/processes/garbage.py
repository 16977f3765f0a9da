"""How often Python looks for garbage."""

from __future__ import annotations

import gc

_OBJECTS = 50_000
"""New objects after which garbage is collected; Python's own number is 700."""


def collect_rarely() -> None:
    """Look for garbage rarely: starting makes many objects and leaves hardly any garbage, and
    later a search stops all threads. To be called before anything large is imported.
    """
    gc.set_threshold(_OBJECTS, 20, 100)


__all__ = ["collect_rarely"]
