"""A long computation of native code, in slices between which its caller does something else."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

_GRACE = 0.02
_LOW = 10
"""Niceness of what computes on beside its caller."""


class Sliced:
    """Computes in a thread of its own, which goes on while the caller waits in `go_on`. The
    computation calls `pause` between its steps. A step that lasts beyond a slice is computed to its
    end beside the caller, and nothing after it.

    A thread that nobody lets go on any more waits for ever, with what it uses; `go_on` without a
    limit ends it.
    """

    def __init__(self, work: Callable[[], None], grace: float = _GRACE) -> None:
        """A step may last ``grace`` seconds beyond its slice before the caller goes on."""
        self._work = work
        self._grace = grace
        self._changed = threading.Condition()
        self._goes_on = False
        """Whether the thread may begin a further step."""
        self._until: float | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.turn = 0
        """Odd while the caller waits; each wait has a number of its own."""
        self.over = False
        """Whether the work has ended."""

    @property
    def limited(self) -> bool:
        """Whether this slice ends before the work does."""
        return self._until is not None

    def go_on(self, until: float | None) -> bool:
        """Compute until that time of `time.perf_counter` is reached, None: to the end. Whether the
        work has ended.

        Raises:
            BaseException: what the work raised.
        """
        end = None if until is None else max(until, time.perf_counter()) + self._grace
        with self._changed:
            self._until, self._goes_on = until, True
            self.turn += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slices", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            while self._goes_on and not self.over:
                left = None if end is None else end - time.perf_counter()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            self.turn += 1
            if not self.over:
                return False
        self._thread.join()
        if self._error is not None:
            raise self._error
        return True

    def pause(self) -> None:
        """Let the caller do something else, where the slice is over; in the thread of the work."""
        if self._until is not None and time.perf_counter() >= self._until:
            with self._changed:
                self._goes_on = False
                self._changed.notify_all()
                while not self._goes_on:
                    self._changed.wait()

    def _run(self) -> None:
        if self.limited and sys.platform == "linux":  # elsewhere it would be all of the process
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW)
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self._error = error
        with self._changed:
            self.over = True
            self._changed.notify_all()
