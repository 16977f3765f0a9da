"""Delays of the event loop."""

from __future__ import annotations

import asyncio
import statistics
import time
from types import TracebackType
from typing import Self

_BEAT = 0.005
"""Seconds between two checks of the loop."""


class Watch:
    """Records how late the loop resumes a sleeping task, between entering and leaving."""

    def __init__(self, every: float = _BEAT) -> None:
        self.late: list[float] = []
        """Seconds, beat by beat."""
        self.worked: list[float] = []
        """CPU seconds of the loop's thread, beat by beat: what a stall is on an idle machine."""
        self._every = every

    def __enter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            before, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(self._every)
            self.worked.append(time.thread_time() - worked)
            self.late.append(time.perf_counter() - before - self._every)

    @property
    def longest(self) -> float:
        """The longest stall in milliseconds."""
        return 1000 * max(self.late, default=0.0)

    @property
    def work(self) -> float:
        """The most that the loop's thread worked between two beats, in milliseconds."""
        return 1000 * max(self.worked, default=0.0)

    @property
    def p99(self) -> float:
        """99th percentile of the delays, in milliseconds; the longest of fewer than two."""
        if len(self.late) < 2:
            return self.longest
        return 1000 * statistics.quantiles(self.late, n=100)[-1]
