"""Garbage collection at times when nobody waits.

A full collection walks every widget and takes a tenth of a second or more, which a person sees as
a stutter in the text. So while a reply is streamed only the young objects are collected, and the
whole heap when nothing has happened for a while.
"""

from __future__ import annotations

import gc

_YOUNG = 10_000
_MIDDLE = 4
_NEVER = 1_000_000


def postpone() -> None:
    """From now on collect by itself only what is young."""
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.freeze()


def collect() -> None:
    """Collect everything; what is left is not looked at again until the next time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
