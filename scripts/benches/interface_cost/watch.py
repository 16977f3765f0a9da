"""Delays of the event loop, and what it was doing meanwhile."""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
import traceback
from collections import Counter
from types import TracebackType
from typing import Self

_BEAT = 0.005
"""Seconds between two checks of the loop."""
_SUSPECT = 0.015
"""Seconds without a beat after which the loop's stack is recorded."""
_LOOK = 0.001


class Watch:
    """Records how late the loop resumes a sleeping task, between entering and leaving."""

    def __init__(self, every: float = _BEAT) -> None:
        self.late: list[float] = []
        """Seconds, beat by beat."""
        self.worked: list[float] = []
        """CPU seconds of the loop's thread, beat by beat: what a stall is on an idle machine."""
        self._every = every
        self._beaten = time.perf_counter()

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
            self._beaten = before
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
        """99th percentile of the delays, in milliseconds."""
        return 1000 * statistics.quantiles(self.late, n=100)[-1]


class Stacks(Watch):
    """Also what the loop was doing in its longest stall, which costs time of its own."""

    def __enter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._stalls: list[tuple[float, Counter[str]]] = []
        self._over = threading.Event()
        sys.setswitchinterval(_LOOK / 4)
        self._looker = threading.Thread(target=self._look, daemon=True)
        self._looker.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, at)
        self._over.set()
        self._looker.join()

    def _look(self) -> None:
        beat, seen = 0.0, Counter[str]()
        while not self._over.wait(_LOOK):
            if self._beaten != beat:
                if seen:
                    self._stalls.append((self._length, seen))
                beat, seen = self._beaten, Counter()
            self._length = time.perf_counter() - beat
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - what it is for
            if frame is not None and self._length > _BEAT:
                lines = traceback.extract_stack(frame)
                seen.update(
                    {f"{f.name} ({f.filename.rpartition('/')[2]}:{f.lineno})" for f in lines}
                )

    def report(self, most: int = 3) -> str:
        """The longest stalls with the functions that were seen in them."""
        found = sorted(self._stalls, key=lambda stall: -stall[0])[:most]
        return "\n".join(
            f"{1000 * length:.0f} ms\n"
            + "\n".join(f"  {count:4} {name}" for name, count in seen.most_common(60))
            for length, seen in found
        )
