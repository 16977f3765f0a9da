"""Aborts a pass that several requests share, once all of them were interrupted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from localspec.core.interrupt import Interrupt, StopSignal


class PassStop:
    """Sets the stop signal of a pair by the interrupts of the requests in its passes.

    llama.cpp aborts whole passes, so a pass runs on while one of its requests needs it.
    """

    def __init__(self, signal: StopSignal) -> None:
        self._signal = signal
        self._lock = threading.RLock()  # a collected stream may call `look` within it
        self._interrupts: tuple[Interrupt, ...] = ()
        self._closed = False

    @contextmanager
    def computing_for(self, interrupts: Sequence[Interrupt]) -> Iterator[None]:
        """Abort the passes in this block when all of ``interrupts`` are set."""
        with self._lock:
            self._interrupts = tuple(interrupts)
            if not self._closed:
                self._signal.clear()
            self.look()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts = ()

    def look(self) -> None:
        """Abort the running pass if all its requests were interrupted; callable from any thread."""
        with self._lock:
            wanted = self._interrupts
            if wanted and all(interrupt.is_set() for interrupt in wanted):
                self._signal.set()

    def close(self) -> None:
        """Abort the running pass and all to come."""
        with self._lock:
            self._closed = True
            self._signal.set()
