"""How many connections a pull may have at once: found out while it runs.

Content networks often give a single connection less than the line. So after a while with one
connection a file more are opened, and more again, as long as that makes the whole faster.
"""

from __future__ import annotations

import threading
import time

STEPS = (0, 3, 7)
"""Connections beside the first of each file; servers take many more for an attack."""
WARM_UP, MEASURE = 0.4, 0.6
"""Seconds after a change before its effect is measured, and that it is measured for."""
_GAIN = 1.1
"""Times faster that more connections must make a pull to be kept."""
_LEAST_SAMPLE = 1 << 20
"""Bytes that a measurement needs at least."""
_AGAIN = 20.0
"""Seconds before more connections are tried once more; doubled each time."""


class ConnectionLimit:
    """Extra connections of all files of a pull; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowed, self._open = STEPS[0], 0
        self._best: float | None = None
        """Bytes a second with the connections before the last step; None before the first."""
        self._before = STEPS[0]
        self._arrived, self._marked = 0, 0
        self._since = time.monotonic()
        self._measuring = False
        self._rest = _AGAIN
        self._resting_until = 0.0

    def arrived(self, n_bytes: int) -> None:
        """Note bytes that came over any connection."""
        with self._lock:
            self._arrived += n_bytes

    def take(self) -> bool:
        """Whether one more extra connection may be opened; it counts as open then."""
        with self._lock:
            self._think(time.monotonic())
            if self._open >= self._allowed:
                return False
            self._open += 1
            return True

    def give_back(self, *, refused: bool = False) -> None:
        """An extra connection is closed; ``refused`` by the server, so no more are tried."""
        with self._lock:
            self._open -= 1
            if refused:
                self._settle(self._open, time.monotonic())

    @property
    def surplus(self) -> bool:
        """Whether there are more extra connections than help."""
        return self._open > self._allowed

    def _think(self, now: float) -> None:
        """Allow more connections, keep what there are, or go back."""
        if now < self._resting_until or self._allowed > self._open:
            self._measuring, self._since = False, now
            return
        if not self._measuring:
            if now - self._since >= WARM_UP:
                self._measuring, self._since, self._marked = True, now, self._arrived
            return
        seconds, came = now - self._since, self._arrived - self._marked
        if seconds < MEASURE or came < _LEAST_SAMPLE:
            return
        rate = came / seconds
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
        self._resting_until, self._rest = now + self._rest, 2 * self._rest
