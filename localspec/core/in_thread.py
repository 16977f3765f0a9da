"""Work that blocks, as reading a file does that a user or a model names, beside an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Gone = Callable[[], bool]
"""Whether nobody waits any more for what a thread works at."""


_MOST_THREADS = 16
"""Threads at a time; those that nobody waits for any more end when they see that."""
_PAUSE_SECONDS = 0.05
_working: set[threading.Thread] = set()


async def in_thread(work: Callable[[Gone], T]) -> T:
    """What ``work`` returns, or raises, in a thread of its own. The end of a program does not wait
    for it, as for `asyncio.to_thread`, which is for what has to be done: saving.
    """
    loop = asyncio.get_running_loop()
    waits: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    while len(_working) >= _MOST_THREADS:  # noqa: ASYNC110 - they end in no loop
        await asyncio.sleep(_PAUSE_SECONDS)

    def arrive(tell: Callable[[], None]) -> None:
        if not waits.cancelled():
            tell()

    def run() -> None:
        tell: Callable[[], None]
        try:
            tell = functools.partial(waits.set_result, context.run(work, waits.cancelled))
        except StopIteration as error:  # which no future takes
            tell = functools.partial(waits.set_exception, RuntimeError(repr(error)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            tell = functools.partial(waits.set_exception, error)
        _working.discard(threading.current_thread())
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(arrive, tell)

    thread = threading.Thread(target=run, name="in_thread", daemon=True)
    _working.add(thread)
    try:
        thread.start()
    except RuntimeError:  # the system has none now
        _working.discard(thread)
        raise
    return await waits
