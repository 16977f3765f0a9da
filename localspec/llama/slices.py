"""A long computation of native code, in slices between which its caller does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Sliced:
    """Computes in a thread of its own, which goes on only while the caller waits in `go_on`: the
    two never compute at once. The computation calls `pause` between its steps, and what it uses
    must bear to be called from another thread.

    A thread that nobody lets go on any more waits for ever, with what it uses; `go_on` without a
    limit ends it.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._until: float | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
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
        self._until = until
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="localspec slices", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        if self.over:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.over

    def pause(self) -> None:
        """Let the caller do something else, where the slice is over; in the thread of the work."""
        if self._until is not None and time.perf_counter() >= self._until:
            self._back.release()
            self._go.acquire()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self._error = error
        self.over = True
        self._back.release()
