"""How much other programs use of the processors that this process may run on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from time import monotonic

import psutil

from localspec.core.processes import host
from localspec.core.processes.host import ProcessorTime

BUSY = 0.15
"""Share of the processors, used by others, from which what is measured beside them is in doubt."""
_SAMPLE_S = 0.3
"""Seconds that one look takes: some ten times the smallest time that a system counts."""


class Neighbours:
    """The processor time of all programs but this process and its children, since a moment."""

    def __init__(self) -> None:
        self._began, self._before = monotonic(), _others()

    @property
    def share(self) -> float:
        """Their share of the processors that this process may run on, 0 to 1."""
        now = _others()
        room = (monotonic() - self._began) * now.processors
        used = max(0.0, now.seconds - self._before.seconds)
        return min(1.0, used / room) if room > 0 else 0.0

    @property
    def busy(self) -> bool:
        """Whether they used so much that a time measured meanwhile is in doubt."""
        return self.share > BUSY


def busy_now() -> bool:
    """Whether other programs are busy. Blocks for `_SAMPLE_S`."""
    neighbours = Neighbours()
    time.sleep(_SAMPLE_S)
    return neighbours.busy


async def calm_within(seconds: float) -> bool:
    """Wait for a moment in which others are not busy, at most ``seconds``; whether it came."""
    end = monotonic() + seconds
    while True:
        neighbours = Neighbours()
        await asyncio.sleep(_SAMPLE_S)
        if not neighbours.busy:
            return True
        if monotonic() >= end:
            return False


def _others() -> ProcessorTime:
    """That of all other programs so far."""
    now = host.processor_time()
    return ProcessorTime(now.seconds - _ours(), now.processors)


def _ours() -> float:
    me = psutil.Process()
    mine = me.cpu_times()
    # Those of children that have ended are in our own; psutil has no such figure on Windows.
    ended = getattr(mine, "children_user", 0.0) + getattr(mine, "children_system", 0.0)
    seconds = mine.user + mine.system + ended
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            of_child = child.cpu_times()
            seconds += of_child.user + of_child.system
    return float(seconds)
