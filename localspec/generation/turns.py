"""The turns of running replies: whose round is next, where they cannot all be in it; when a pass
that they share is aborted; and what all of them wait for beside passes.

A pass has one blend of adapters. Replies of the same blend share their passes. The others take
turns with them: each turn has about the same time, so that exchanging the adapters costs little of
it, and a round of at least one pass.

Where samplers look at all of a large vocabulary, a row takes a part of a second, and everybody
waits for it: a round has as many such replies as fit in `ROWS_MOST_SECONDS`, in turns.

Of that the computing of the thread itself is counted, since what a busy machine takes from it is
not its doing. Passes are not: everybody has a share in them. What a round does for a grammar has
limits of its own, see `localspec.grammar.matching`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from localspec.core.adapter_list import Blend
from localspec.core.interrupt import Interrupt, StopSignal
from localspec.decode.request import ROWS_MOST_SECONDS
from localspec.generation.generation import Generation

_CHEAP = 0.005
"""Seconds of a reply's rows that nobody notices."""
TURN = 0.1
"""Seconds of a turn. Exchanging adapters takes about as long as a pass of a small model."""
WAIT = 0.2
"""Seconds of all turns of others between two of one's own, but for the last round of each: turns
are shorter where there are many.
"""


class Turns:
    """Belongs to the thread that owns the models."""

    def __init__(self) -> None:
        self._present: Blend | None = None
        self._until = 0.0
        self._last: dict[Blend, int] = {}
        """When each of the blends that run had its last turn, counted in turns."""
        self._count = 0
        self._left_out: dict[int, int] = {}
        """Rounds in a row that a sequence was not in, since its rows would have taken too long."""

    def take(self, decoding: Sequence[Generation]) -> list[Generation]:
        """The replies that decode in this round: all of one blend, the one that waited longest."""
        blends = {one.prepared.blend: None for one in decoding}
        if len(blends) < 2:
            self._present = next(iter(blends), None)
            self._last.clear()
            return self._affordable(decoding)
        now = time.perf_counter()
        if self._present not in blends or now >= self._until:
            self._last = {blend: self._last.get(blend, -1) for blend in blends}
            self._present = min(blends, key=lambda blend: self._last[blend])
            self._until = now + min(TURN, WAIT / (len(blends) - 1))
            self._count += 1
            self._last[self._present] = self._count
        return self._affordable([one for one in decoding if one.prepared.blend == self._present])

    def _affordable(self, decoding: Sequence[Generation]) -> list[Generation]:
        """The replies whose rows take `ROWS_MOST_SECONDS` together, by their last rounds: always
        the cheapest ones, and at least one other, which was left out most often.
        """
        left_out, self._left_out = self._left_out, {}
        if sum(one.request.last_rows_seconds for one in decoding) <= ROWS_MOST_SECONDS:
            return [*decoding]
        seconds, taken = 0.0, list[Generation]()
        for one in sorted(
            decoding,
            key=lambda one: (
                one.request.last_rows_seconds > _CHEAP,
                -left_out.get(one.seq, 0),
            ),
        ):
            cost = one.request.last_rows_seconds
            if cost > _CHEAP and seconds > 0 and seconds + cost > ROWS_MOST_SECONDS:
                self._left_out[one.seq] = 1 + left_out.get(one.seq, 0)
                continue
            seconds += cost if cost > _CHEAP else 0.0
            taken.append(one)
        return taken


class PassStop:
    """Sets the stop signal of a pair by the interrupts of the requests in its passes.

    llama.cpp aborts whole passes, so a pass runs on while one of its requests needs it.
    """

    def __init__(self, signal: StopSignal) -> None:
        self._signal = signal
        self._lock = threading.RLock()  # a collected stream may call `look` within it
        self._interrupts: tuple[Interrupt, ...] = ()
        self._closed = False

    @contextmanager
    def computing_for(self, interrupts: Sequence[Interrupt]) -> Iterator[None]:
        """Abort the passes in this block when all of ``interrupts`` are set."""
        with self._lock:
            self._interrupts = tuple(interrupts)
            if not self._closed:
                self._signal.clear()
            self.look()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts = ()

    def look(self) -> None:
        """Abort the running pass if all its requests were interrupted; callable from any thread."""
        with self._lock:
            wanted = self._interrupts
            if wanted and all(interrupt.is_set() for interrupt in wanted):
                self._signal.set()

    def close(self) -> None:
        """Abort the running pass and all to come."""
        with self._lock:
            self._closed = True
            self._signal.set()


class Phases:
    """The longest time of each phase of a turn; seconds of computing."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Do it, and note how long it took."""
        began = time.thread_time()
        try:
            work()
        finally:
            seconds = time.thread_time() - began
            if seconds > self.longest.get(name, 0.0):
                self.longest[name] = seconds
