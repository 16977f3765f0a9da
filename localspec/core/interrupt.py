"""Interrupts: they end a request before it runs, or in the middle of a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

Cancelled = Callable[[], bool]
"""Whether nobody waits for the result any more; asked now and then, in any thread."""


def never() -> bool:
    """Nobody cancels."""
    return False


class StopSignal(Protocol):
    """A flag of a loaded pair: set, it aborts the running pass."""

    def set(self) -> None:
        """Abort the running pass and those to come."""

    def clear(self) -> None:
        """Let passes run again."""

    def is_set(self) -> bool:
        """Whether it is set."""


class Watcher(Protocol):
    """An object that is told at once when a request must end."""

    def interrupted(self) -> None:
        """An interrupt that it watches was set. Called in any thread, also by the collection of
        garbage: it must neither block nor fail.
        """


class Interrupt:
    """Belongs to one request. Any thread may set it, also before the request begins to run."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collected stream may set it in the middle of `set`
        self._is_set = False
        self._watcher: Watcher | None = None

    def set(self) -> None:
        """End the request: at once where it runs, else as soon as it begins."""
        with self._lock:
            self._is_set = True
            watcher = self._watcher
        if watcher is not None:
            watcher.interrupted()

    def interrupted(self) -> None:
        """See `Watcher`: it ends with another one."""
        self.set()

    def is_set(self) -> bool:
        """Whether the request was told to end."""
        return self._is_set

    def watch(self, watcher: Watcher | None) -> None:
        """Let ``watcher`` be told from now on; at once, if it is set already."""
        with self._lock:
            self._watcher = watcher
            told = self._is_set
        if told and watcher is not None:
            watcher.interrupted()
