"""The time after which an idle engine is unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class UnloadTimer:
    """Runs while the engine is idle."""

    def __init__(self, seconds: float | None) -> None:
        """``seconds`` None: never."""
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self, unload: Callable[[], None]) -> None:
        """Call ``unload`` after the time, counted from now."""
        self.stop()
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, unload)

    def stop(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


__all__ = ["UnloadTimer"]
