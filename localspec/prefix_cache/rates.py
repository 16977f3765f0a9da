"""Measured speeds: of reading prompts, and of moving states."""

from __future__ import annotations

MEMORY_BYTES_PER_SECOND = 1e9
"""Assumed speed of copying a state into the KV cache, until one was copied."""
DISK_BYTES_PER_SECOND = 300e6
"""Assumed speed of restoring a state from disk, until one was restored."""
_WEIGHT = 0.75
"""Weight of the earlier measurements when a new one comes."""


class Rate:
    """Units per second: sums of units and seconds in which older measurements weigh less."""

    def __init__(self, assumed: float = 0.0) -> None:
        """``assumed`` is the rate until the first measurement; 0: unknown."""
        self._assumed = assumed
        self._units, self._seconds = 0.0, 0.0

    def add(self, units: float, seconds: float) -> None:
        """Record a measurement."""
        self._units = _WEIGHT * self._units + units
        self._seconds = _WEIGHT * self._seconds + max(seconds, 1e-9)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self._seconds > 0

    @property
    def per_second(self) -> float:
        """The rate; 0 if it is unknown."""
        return self._units / self._seconds if self._seconds > 0 else self._assumed

    def seconds(self, units: float) -> float:
        """Seconds for that many units; 0 if the rate is unknown."""
        rate = self.per_second
        return units / rate if rate > 0 else 0.0


class Moving(Rate):
    """Bytes per second of moving states."""


class Rates:
    """Measured speeds, by which the prefix cache decides what is worth keeping and restoring."""

    def __init__(self) -> None:
        self.reading = Rate()
        """Tokens of prompts."""
        self.memory = Moving(MEMORY_BYTES_PER_SECOND)
        """Bytes between the KV cache and memory."""
        self.disk = Moving(DISK_BYTES_PER_SECOND)
        """Bytes from disk into the KV cache."""
