"""How many connections a pull may have at once, found while it runs.

Content networks often give a single connection less than the line. So a pull starts with one
connection a file, and opens more in steps as long as each step makes the whole faster.
"""

from __future__ import annotations

import threading
import time

STEPS = (0, 3, 7)
"""Extra connections of the whole pull at each step; servers block clients with many more."""
WARM_UP, MEASURE = 0.4, 0.6
"""Seconds between a change and the measurement of its effect, and seconds of measuring."""
_GAIN = 1.1
"""Factor by which more connections must speed a pull up to be kept."""
_LEAST_SAMPLE = 1 << 20
"""Bytes; fewer make no measurement."""
_RETRY_AFTER = 20.0
"""Seconds until more connections are tried again; doubled each time."""


class ConnectionLimit:
    """Counts and limits the extra connections of a pull. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowed, self._open = STEPS[0], 0
        self._best: float | None = None
        """Bytes a second before the last step; None before the first step."""
        self._before = STEPS[0]
        self._arrived, self._marked = 0, 0
        self._since = time.monotonic()
        self._measuring = False
        self._pause = _RETRY_AFTER
        self._paused_until = 0.0

    def count(self, n_bytes: int) -> None:
        """Count bytes that arrived over any connection."""
        with self._lock:
            self._arrived += n_bytes

    def acquire(self) -> bool:
        """Whether one more extra connection may be opened; if so, it counts as open."""
        with self._lock:
            self._measure(time.monotonic())
            if self._open >= self._allowed:
                return False
            self._open += 1
            return True

    def release(self, *, refused: bool = False) -> None:
        """Count an extra connection as closed; one that was ``refused`` ends further trials."""
        with self._lock:
            self._open -= 1
            if refused:
                self._settle(self._open, time.monotonic())

    @property
    def surplus(self) -> bool:
        """Whether more extra connections are open than allowed."""
        return self._open > self._allowed

    def _measure(self, now: float) -> None:
        """Measure the rate, and allow more connections, keep the number, or go back a step."""
        if now < self._paused_until or self._allowed > self._open:
            self._measuring, self._since = False, now
            return
        if not self._measuring:
            if now - self._since >= WARM_UP:
                self._measuring, self._since, self._marked = True, now, self._arrived
            return
        seconds, arrived = now - self._since, self._arrived - self._marked
        if seconds < MEASURE or arrived < _LEAST_SAMPLE:
            return
        rate = arrived / seconds
        if self._best is not None and rate < _GAIN * self._best:
            self._settle(self._before, now)
        else:
            further = [step for step in STEPS if step > self._allowed]
            if further:
                self._best, self._before, self._allowed = rate, self._allowed, further[0]
            else:
                self._settle(self._allowed, now)
        self._measuring, self._since = False, now

    def _settle(self, allowed: int, now: float) -> None:
        self._allowed, self._best = allowed, None
        self._paused_until, self._pause = now + self._pause, 2 * self._pause
