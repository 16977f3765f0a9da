"""What passes and drafts cost on this machine: a measured curve, updated while it is used.

The curve t(n), seconds of a target pass over n tokens, has real steps (on AVX-512 a Q4_0 pass over
four tokens is cheaper than one over three; CUDA changes kernels with the width), so it is a table
and no fit. The observed times are separated into four parts, or a machine that became slower would
be mistaken for speculation that became worse:

    log t(n) = base(n) + offset(n) + slowness + [n > 1] steepness

`base` is the sweep at load. `slowness` is common to all widths: another program on the cores, a
longer context. `steepness` is common to all passes over several tokens: one token waits for memory,
several for arithmetic, and a machine's arithmetic may halve when a neighbour shares its cores.
`offset` belongs to one width. Steepness is learnt from neighbours only: a pass over one token and
one over several within a few rounds; the offset only while another width was seen not long before.
Otherwise they could not be told from slowness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class CostsTuning:
    """Constants of `Costs`."""

    slowness_weight: float = 0.2
    """Weight of a new pass in the common slowness."""
    offset_weight: float = 0.1
    """Weight of a new pass in the offset of its width, and of a new draft in its cost."""
    offset_step: float = 0.2
    """Largest surprise (logarithm) that is attributed to one width."""
    clamp: float = math.log(3.0)
    """Logarithm of the largest surprise that counts; the rest is a stall."""
    recent: int = 96
    """Passes for which the slowness seen on another width is taken to last."""
    settle: int = 3
    """First passes of a width in this process that may be slow, since graphs are being built."""
    near: int = 8
    """Passes within which one over a single token and one over several are neighbours."""
    contrast_least: float = 0.1
    """Least weight of a pair of neighbours in the steepness."""
    contrast_first: float = 0.5
    """Weight of the first pair."""


class Costs:
    """Seconds of target passes by width, and of drafted tokens by drafter."""

    def __init__(
        self,
        sweep: Mapping[int, float],
        drafts: Mapping[str, float] | None = None,
        tuning: CostsTuning = CostsTuning(),
    ) -> None:
        """``sweep`` maps a number of tokens to seconds; ``drafts`` a drafter to seconds per token.

        Raises:
            ValueError: the sweep is empty, or a time is not positive and finite.
        """
        self.tuning = tuning
        if not sweep or not all(n > 0 and 0 < s < math.inf for n, s in sweep.items()):
            raise ValueError("a sweep needs at least one positive time")
        self._base = {n: math.log(s) for n, s in sorted(sweep.items())}
        self._offset = dict.fromkeys(self._base, 0.0)
        self._slowness = 0.0
        self._steepness = 0.0
        self._pairs = 0
        self._contrast = 0.0
        """The contrast of the last pair."""
        self._residual: dict[bool, tuple[float, int]] = {}
        """Whether over several tokens -> (logarithm of time over expected time, number of pass)."""
        self._drafts = dict(drafts or {})
        self._passes = 0
        self._seen: dict[int, tuple[int, int]] = {}
        """Width -> (passes in this process, number of the last one)."""

    # -- reading -------------------------------------------------------------------------------

    def verify(self, width: int) -> float:
        """Expected seconds of a pass over ``width`` tokens now."""
        return math.exp(self._slowness) * self._quiet(width)

    def _quiet(self, width: int) -> float:
        base = self._base
        if width in base:
            return math.exp(self._own(width))
        below = max((n for n in base if n < width), default=None)
        above = min((n for n in base if n > width), default=None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None
            return self._quiet(nearest) * max(1.0, width / nearest)
        share = (width - below) / (above - below)
        return (1 - share) * self._quiet(below) + share * self._quiet(above)

    def _own(self, width: int) -> float:
        """Logarithm of the seconds of a measured width, without the current slowness."""
        own = self._base[width] + self._offset[width]
        if width == 1 or 1 not in self._base:
            return own
        return max(own + self._steepness, self._base[1] + self._offset[1])

    def draft(self, source: str) -> float:
        """Expected seconds per token of that drafter; 0 where none was measured."""
        return self._drafts.get(source, 0.0)

    # -- learning ------------------------------------------------------------------------------

    def passed(self, width: int, seconds: float) -> None:
        """Record a pass over ``width`` tokens."""
        if seconds <= 0:
            return
        self._passes += 1
        count, _ = self._seen.get(width, (0, 0))
        elsewhere = max((last for n, (_, last) in self._seen.items() if n != width), default=0)
        self._seen[width] = (count + 1, self._passes)
        if width not in self._base:
            self._base[width] = math.log(self._quiet(width)) - self._steepness * (width > 1)
            self._offset[width] = 0.0
        surprise = self._clamped(math.log(seconds) - self._own(width) - self._slowness)
        if count < self.tuning.settle and len(self._seen) > 1 and surprise > 0:
            return
        self._compare(width > 1, math.log(seconds) - self._base[width] - self._offset[width])
        if elsewhere and self._passes - elsewhere <= self.tuning.recent:
            step = self.tuning.offset_step
            self._offset[width] += self.tuning.offset_weight * max(-step, min(step, surprise))
        self._slowness += self.tuning.slowness_weight * surprise

    def _compare(self, several: bool, residual: float) -> None:
        """Update the steepness: what a pass over several tokens takes beyond its neighbour over
        one.
        """
        self._residual[several] = residual, self._passes
        other, seen = self._residual.get(not several, (0.0, -self.tuning.near))
        if self._passes - seen > self.tuning.near:
            return
        contrast = self._clamped(
            (residual - other if several else other - residual) - self._steepness
        )
        before, self._contrast = self._contrast, contrast
        if before * contrast <= 0:  # the machine changed between the two, or not at all
            return
        first = self.tuning.contrast_first
        weight = max(self.tuning.contrast_least, first / (1 + self._pairs / 2))
        self._steepness += weight * min(before, contrast, key=abs)
        self._pairs += 1

    def drafted(self, source: str, tokens: int, seconds: float) -> None:
        """Record a draft of ``tokens`` tokens."""
        each = seconds / tokens
        before = self._drafts.get(source)
        if before is None or before <= 0:
            self._drafts[source] = each
        else:
            surprise = self._clamped(math.log(max(each, 1e-9) / before))
            self._drafts[source] = before * math.exp(self.tuning.offset_weight * surprise)

    # -- saving --------------------------------------------------------------------------------

    def curve(self) -> dict[int, float]:
        """Seconds by width, for saving: with all offsets, without the current slowness."""
        return {n: self._quiet(n) for n in sorted(self._base)}

    def renewed(self, seen: Mapping[int, float], drafts: Mapping[str, float]) -> Costs:
        """The curve adapted to the machine as it is today: ``seen`` maps a few widths to seconds,
        and the other widths move as their neighbours did.
        """
        widths = sorted(seen)
        moved = [math.log(seen[n] / self._quiet(n)) for n in widths]
        where = [math.log(n) for n in widths]
        curve = {
            n: seconds * math.exp(float(np.interp(math.log(n), where, moved)))
            for n, seconds in self.curve().items()
        }
        return Costs(curve | dict(seen), self._drafts | dict(drafts), self.tuning)

    def drafts(self) -> dict[str, float]:
        """Seconds per token by drafter, for saving."""
        return dict(self._drafts)

    def _clamped(self, x: float) -> float:
        return max(-self.tuning.clamp, min(self.tuning.clamp, x))


__all__ = ["Costs", "CostsTuning"]
