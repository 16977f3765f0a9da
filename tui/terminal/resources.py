"""What the interface takes of the machine: refreshes, collections of garbage, memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from localspec.core.errors import Interrupted
from localspec.core.events import ModelInfo
from localspec.core.in_thread import Gone

_USUAL = 1 / 16
"""Seconds between two refreshes at which the text appears to flow."""
_FREE_SHARE = 0.25
"""Part of one processor that the interface may use where the model leaves processors free."""
_BUSY = 1 / 10
_BUSY_SHARE = 0.015
"""The same where the model computes on every processor: while the interface uses one of them, the
threads of the model wait for each other."""
_LONGEST = 0.5
"""Most seconds between two refreshes, however much they cost."""
FIGURES_SECONDS = 0.25
"""Least seconds between two refreshes of the figures, which are not read faster."""
MESSAGE_SECONDS = 0.08
"""Seconds between two messages of the engine with tokens: reading one costs time, too."""


_WORK_SECONDS, _REST_SECONDS = 0.001, 0.003
"""A thread that typesets text alternates between these. Without rests it takes half of the event
loop's time, and each of the loop's stalls is twice as long."""


class Rests:
    """Called often by a thread that works for long; pauses it now and then."""

    def __init__(self, gone: Gone) -> None:
        self._gone = gone
        self._since = time.perf_counter()

    def __call__(self) -> None:
        """Sleep where the thread has worked long enough.

        Raises:
            Interrupted: nobody waits for it any more.
        """
        if self._gone():
            raise Interrupted("nobody waits for it")
        if time.perf_counter() - self._since >= _WORK_SECONDS:
            time.sleep(_REST_SECONDS)
            self._since = time.perf_counter()


class RefreshRate:
    """Decides when the next refresh is due while a reply is made.

    Refreshes come at a steady rate unless the interface has used more than its share of a
    processor, for whatever it did; then the next one waits until the share covers it, though never
    longer than half a second.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self.interval = _USUAL
        """Seconds between two refreshes where they cost little."""
        self._share = _FREE_SHARE
        self._last = self._checked = clock()
        self._used = cpu()
        self._credit = 0.0
        """CPU seconds that may still be used; negative where too many were."""

    def model_opened(self, info: ModelInfo) -> None:
        """Adapt to the processors that a model leaves free."""
        from localspec.core.processes import host  # later than the first picture

        self.leave_processors(busy=info.backend == "cpu" and info.threads >= host.processors() - 1)

    def leave_processors(self, *, busy: bool) -> None:
        """Take little of the processors where they are busy, or as much as looks best."""
        self.interval = _BUSY if busy else _USUAL
        self._share = _BUSY_SHARE if busy else _FREE_SHARE

    def due(self) -> bool:
        """Whether to refresh now; the refresh is taken to happen then."""
        now, used = self._clock(), self._cpu()
        self._credit += self._share * (now - self._checked) - (used - self._used)
        most = self._share * _LONGEST
        self._credit = max(-most, min(most, self._credit))
        self._checked, self._used = now, used
        since = now - self._last
        if since < _LONGEST and (self._credit < 0 or since < 0.9 * self.interval):
            return False
        self._last = now
        return True


_YOUNG = 10_000
_MIDDLE = 4
_NEVER = 1_000_000


def postpone_garbage() -> None:
    """Let Python collect only young objects by itself."""
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.freeze()


def collect_new_garbage() -> None:
    """Collect what was made since the last `collect_garbage`: about 0.05 s, however long the chat.
    Of what was there then, the few messages that were shown wait for the next one.
    """
    gc.collect()


def collect_garbage() -> None:
    """Collect everything; survivors are exempt from collection until the next call."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


_INTERVAL = 2.0


class MemoryGauge:
    """Asks the system at intervals for the resident size, mapped files included."""

    def __init__(self) -> None:
        self._next = 0.0
        self._pid: int | None = None
        self._held: int | None = None

    def look(self, pid: int | None) -> int | None:
        """Bytes of the process; None where there is no process."""
        now = time.monotonic()
        if pid != self._pid or now >= self._next:
            self._pid, self._next = pid, now + _INTERVAL
            self._held = self._ask(pid)
        return self._held

    @staticmethod
    def _ask(pid: int | None) -> int | None:
        if pid is None:
            return None
        import psutil  # later than the first picture

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:  # it has just ended, which others report
            return None
