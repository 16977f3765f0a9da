"""The growing pauses between attempts to start an engine that does not come up."""

from __future__ import annotations

import time

_FIRST, _LONGEST = 1.0, 30.0
"""Seconds."""


class RestartPause:
    """How long the next attempt waits."""

    def __init__(self) -> None:
        self.failures = 0
        """Failed attempts since one lasted."""
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next attempt; zero or less: it may begin."""
        return self._until - time.monotonic()

    def extend(self) -> None:
        """An attempt failed: pause, twice as long as the last time."""
        self._until = time.monotonic() + min(_LONGEST, _FIRST * 2.0**self.failures)
        self.failures = min(self.failures + 1, 10)

    def forget(self) -> None:
        """An attempt lasted: the next pause is short again."""
        self.failures = 0

    def end(self) -> None:
        """The next attempt begins at once."""
        self.failures, self._until = 0, 0.0
