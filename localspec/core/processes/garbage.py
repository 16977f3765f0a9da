"""How often Python looks for garbage."""

from __future__ import annotations

import gc

_STARTING = (50_000, 20, 100)
"""New objects after which the youngest garbage is collected, and how often older one is; Python's
own numbers are 700, 10 and 10."""
_RUNNING = (2_000, 10, 10)


def collect_rarely() -> None:
    """Look for garbage rarely: starting makes many objects and leaves hardly any garbage, and
    a search stops all threads. Call it before anything large is imported.
    """
    gc.set_threshold(*_STARTING)


def collect_new() -> None:
    """Look for garbage often, among objects made from now on alone, so that a process that runs for
    days does not grow and no search takes long. Call it each time everything is loaded.
    """
    if gc.get_freeze_count():  # what was loaded before may be garbage by now
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_RUNNING)
