"""Whose round is next, where running replies have different adapters: a pass has one blend.

Replies of the same blend share their passes. The others take turns with them: each turn has about
the same time, so that exchanging the adapters costs little of it, and a round of at least one pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from localspec.core.adapter_list import Blend
from localspec.generation.reply_job import Running

TURN = 0.1
"""Seconds of a turn. Exchanging adapters takes about as long as a pass of a small model."""


class Turns:
    """Belongs to the thread that owns the models."""

    def __init__(self) -> None:
        self._present: Blend | None = None
        self._until = 0.0
        self._last: dict[Blend, int] = {}
        """When each of the blends that run had its last turn, counted in turns."""
        self._count = 0

    def take(self, decoding: Sequence[Running]) -> list[Running]:
        """Those of the replies that decode now: all of one blend, which waited longest."""
        blends = {running.generation.prepared.blend: None for running in decoding}
        if len(blends) < 2:
            self._present = next(iter(blends), None)
            self._last.clear()
            return [*decoding]
        now = time.perf_counter()
        if self._present not in blends or now >= self._until:
            self._last = {blend: self._last.get(blend, -1) for blend in blends}
            self._present = min(blends, key=lambda blend: self._last[blend])
            self._until = now + TURN
            self._count += 1
            self._last[self._present] = self._count
        return [one for one in decoding if one.generation.prepared.blend == self._present]


__all__ = ["TURN", "Turns"]
