"""The one way in which tests wait: for a condition, for as long as a busy machine may need."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 60.0
"""Seconds after which nothing is expected any more."""
_PAUSE = 0.005


def until(
    condition: Callable[[], object],
    seconds: float = PATIENCE,
    *,
    process: subprocess.Popen[Any] | None = None,
) -> None:
    """Wait until something is so, while ``process`` runs: if it ends, the wait was in vain."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(_PAUSE)


async def until_so(
    condition: Callable[[], object],
    seconds: float = PATIENCE,
    *,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    instead: Callable[[], str] = lambda: "waited in vain",
) -> None:
    """Let other tasks run, by ``pause``, until something is so; ``instead`` says what is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, instead()
        await pause(_PAUSE)


async def turn(_seconds: float) -> None:
    """A pause of one turn of the event loop, for what may be so no longer than that."""
    await asyncio.sleep(0)
