"""Which stream of cells each sequence has: those that decode are kept in neighbouring ones.

llama.cpp computes a pass over streams with gaps between them in parts, each of which reads the
weights, or over rows of idle streams in the gaps. When replies end, the others are left in such
streams. What two sequences hold is exchanged as soon as the passes since have lost as much time as
an exchange costs: then no more than twice the time is lost that knowing the future would (the
argument for renting before buying; Karlin et al. 1988, "Competitive snoopy caching").
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from localspec.llama import state as saved
from localspec.llama.context import Context
from localspec.llama.pass_shapes import PassShapes

_BYTES_PER_SECOND = 1e9
"""Assumed speed of an exchange, until one was made."""
_LEAST = 0.01
"""Seconds that gaps must have cost at least, before it is looked what to do."""
_MOST_BYTES = 1 << 28
"""Most bytes of an exchange: they are in memory twice for a moment."""


class StreamOrder:
    """Gives the sequences of a context other streams, where that makes passes cheaper."""

    def __init__(self, context: Context, shapes: PassShapes) -> None:
        self._context = context
        self._shapes = shapes
        self._lost = 0.0
        """Seconds lost by gaps since there are any."""
        self._streams: dict[int, int] = {}
        """Rows by stream of the last pass with gaps; the two below are kept as long as it is so."""
        self._now = 0.0
        """Seconds of that pass."""
        self._gaps = 0.0
        """Seconds that its gaps cost."""
        self._speed = _BYTES_PER_SECOND
        self._size = 0.0
        """Bytes of a token; 0: not known yet."""

    def arrange(self, rows: Mapping[int, int]) -> None:
        """Prepare a pass over ``rows`` of each sequence: move the first or the last one into a gap,
        once the gaps have cost as much as that.

        Raises:
            DecodeError: llama.cpp refuses what it has just given; a sequence is empty.
        """
        streams = {self._context.stream(seq): n for seq, n in rows.items()}
        if not self._shapes.movable or max(streams) - min(streams) < len(streams):
            self._lost = 0.0
            return
        if streams != self._streams or self._lost == 0.0:
            self._streams, self._now = streams, self._shapes.seconds(streams)
            together = self._shapes.seconds(dict(enumerate(streams.values())))
            self._gaps = max(0.0, self._now - together)
        self._lost += self._gaps
        first, last = min(streams), max(streams)
        stream = self._context.stream
        ends = [seq for seq in rows if stream(seq) in (first, last)]
        gaps = [seq for seq in range(self._context.sequences) if first < stream(seq) < last]
        idle = [seq for seq in gaps if seq not in rows and seq not in self._context.unfinished]
        costs = {(a, b): self._cost(a) + self._cost(b) for a in ends for b in idle}
        if self._lost < max(_LEAST, min(costs.values(), default=math.inf)):
            return
        most, self._lost = min(self._lost, _MOST_BYTES / self._speed), 0.0
        options = [
            (self._after(rows, a, b), cost, a, b) for (a, b), cost in costs.items() if cost <= most
        ]
        after, _, a, b = min(options, default=(self._now, 0.0, 0, 0))
        if after < self._now:
            self._exchange(a, b)

    def _exchange(self, a: int, b: int) -> None:
        began = time.perf_counter()
        moved = saved.exchange(self._context, a, b)
        self._speed = max(moved, 1) / max(time.perf_counter() - began, 1e-6)

    def _cost(self, seq: int) -> float:
        """Seconds that moving a sequence costs in an exchange."""
        length = self._context.appended(seq)
        if length and not self._size:
            self._size = saved.state_size(self._context, seq) / length
        return length * self._size / self._speed

    def _after(self, rows: Mapping[int, int], a: int, b: int) -> float:
        """Seconds of the pass once ``a`` has the stream of ``b``."""
        stream = self._context.stream
        return self._shapes.seconds({stream(b if seq == a else seq): n for seq, n in rows.items()})
