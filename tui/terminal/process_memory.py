"""Memory of the engine process."""

from __future__ import annotations

import time

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
