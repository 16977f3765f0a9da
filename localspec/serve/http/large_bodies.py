"""Large bodies are read, and large answers written, in a thread: the loop serves all clients.

One thread for all of them, so that the loop has its turn after at most one of Python's switches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")

LARGE = 1 << 16
"""Bytes from which a body takes more than a few milliseconds."""
_THREAD = ThreadPoolExecutor(1, "localspec large bodies")


async def elsewhere(size: int, work: Callable[[], _T]) -> _T:
    """What ``work`` returns, which has to do with ``size`` bytes; it must touch nothing that
    belongs to the loop.

    Raises:
        Exception: what ``work`` raises.
    """
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
