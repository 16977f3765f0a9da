"""The rate of a download."""

from __future__ import annotations

import time
from collections import deque

_WINDOW = 5.0
"""Seconds that a rate is averaged over."""
_SHORTEST = 0.5
"""Seconds before a rate is known."""


class Rate:
    """Bytes a second, from the number of bytes received so far."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def now(self, arrived: int) -> float | None:
        """Bytes a second over the last seconds; None while unknown or where nothing arrives."""
        now = time.monotonic()
        self._seen.append((now, arrived))
        while now - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        seconds, came = now - self._seen[0][0], arrived - self._seen[0][1]
        return None if seconds < _SHORTEST or came <= 0 else came / seconds
