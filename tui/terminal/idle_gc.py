"""Full garbage collections while the interface is idle.

A full collection walks every widget and takes a tenth of a second or more, which the user sees as
a stutter in the text. So while a reply is streamed only the young objects are collected, and the
whole heap when nothing has happened for a while.
"""

from __future__ import annotations

import gc

_YOUNG = 10_000
_MIDDLE = 4
_NEVER = 1_000_000


def postpone() -> None:
    """Let Python collect only young objects by itself."""
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.freeze()


def collect() -> None:
    """Collect everything; survivors are exempt from collection until the next call."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
