"""Computes masks in threads that can be left behind: the library's limits of a step do not hold for
every grammar, see `localspec.grammar.place`.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable

from localspec.core.errors import GrammarError, QueueFullError

MOST_LEFT = 4
"""Threads left behind that still compute, until which further grammars are followed."""
_Step = Callable[[], object]


class Guard:
    """Runs one step after the other, each within a limit of computing. For one calling thread.

    Its thread ends with it.
    """

    def __init__(self) -> None:
        self._thread: _Thread | None = None

    def run(self, step: _Step, most: float) -> float:
        """Run a step; the seconds of computing that it took. What it uses must be used no more
        where this raises `GrammarError`: a thread that was left behind still computes with it.

        Raises:
            GrammarError: it takes more than ``most`` seconds.
            Exception: what ``step`` raises.
        """
        thread = self._thread or self._start()
        self._thread = None
        began = thread.computed()
        thread.steps.put(step)
        spent = 0.0
        while True:
            try:
                error = thread.results.get(timeout=max(0.001, most - spent))
            except queue.Empty:
                spent = thread.computed() - began
                if spent < most:  # on a busy machine
                    continue
                thread.leave()
                raise GrammarError(
                    f"following the grammar takes too long here: a single token takes more than "
                    f"{1000 * most:.0f} ms, the most while others wait; the reply ends there, "
                    "incomplete"
                ) from None
            self._thread = thread
            if error is not None:
                raise error
            return thread.computed() - began

    def _start(self) -> _Thread:
        thread = _Thread()
        weakref.finalize(self, thread.steps.put, None)
        return thread


class _Thread:
    """Takes steps, and tells how each ended."""

    def __init__(self) -> None:
        self.steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grammar step", daemon=True)
        self._thread.start()

    def computed(self) -> float:
        """Seconds of computing so far; by the clock, where the system does not tell."""
        if not hasattr(time, "pthread_getcpuclockid") or self._thread.ident is None:
            return time.monotonic()
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def leave(self) -> None:
        """Take no more steps after the one that runs."""
        self.steps.put(None)
        with _lock:
            _left.append(self._thread)

    def _run(self) -> None:
        while (step := self.steps.get()) is not None:
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - raised to whoever waits
                self.results.put(error)
            else:
                self.results.put(None)
            del step  # what it uses ends with its owner, not with the next step


_lock = threading.Lock()
_left: list[threading.Thread] = []


def require_room() -> None:
    """Refuse a grammar while many threads compute what nobody waits for any more.

    Raises:
        QueueFullError: there are `MOST_LEFT` of them.
    """
    with _lock:
        _left[:] = [thread for thread in _left if thread.is_alive()]
        if len(_left) >= MOST_LEFT:
            raise QueueFullError(
                "grammars of other requests that took too long are still being computed; try again "
                "later"
            )
