"""Ends a request, before it runs or in the middle of a pass."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol


class StopSignal(Protocol):
    """A flag of a loaded pair: set, it aborts the running pass."""

    def set(self) -> None:
        """Abort the running pass and those to come."""
        ...

    def clear(self) -> None:
        """Let passes run again."""
        ...

    def is_set(self) -> bool:
        """Whether it is set."""
        ...


class Interrupt:
    """Belongs to one request. Any thread may set it, also before the request begins to run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._signal: StopSignal | None = None

    def set(self) -> None:
        """End the request: at once where it runs, else as soon as it begins."""
        with self._lock:
            self._is_set = True
            if self._signal is not None:
                self._signal.set()

    def is_set(self) -> bool:
        """Whether the request was told to end."""
        return self._is_set

    @contextlib.contextmanager
    def stopping(self, signal: StopSignal) -> Iterator[None]:
        """While the request runs on a pair, `set` aborts the passes of that pair."""
        with self._lock:
            if self._is_set:
                signal.set()
            else:
                signal.clear()
            self._signal = signal
        try:
            yield
        finally:
            with self._lock:
                self._signal = None


__all__ = ["Interrupt", "StopSignal"]
