"""What passes and drafts cost on this machine: a measured curve, kept true while it is used.

The curve t(n), seconds of a target pass over n tokens, has real steps (on AVX-512 a Q4_0 pass over
four tokens is cheaper than one over three; CUDA changes kernels with the width), so it is a table
and no fit. Three things are told apart in what is observed, or a machine that got slower would be
read as speculation that got worse:

    log t(n) = base(n) + offset(n) + slowness

`base` is the sweep at load. `slowness` is common to all widths: another program on the cores, a
warmer machine, a longer context. `offset` is what one width has of its own; it learns only while
another width was seen shortly before, since else the two cannot be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_FAST = 0.2
"""Weight of a new pass in the common slowness."""
_SLOW = 0.1
"""Weight of a new pass in its width's own offset."""
_CLAMP = math.log(3.0)
"""A pass counts for at most three times what was expected; the rest is an accident."""
_RECENT = 96
"""Passes for which the slowness seen on another width is taken to last."""
_SETTLE = 3
"""First passes of a width in this process that teach nothing: graphs are being built."""


class Costs:
    """Seconds of target passes by width, and of drafted tokens by drafter."""

    def __init__(
        self, sweep: Mapping[int, float], drafts: Mapping[str, float] | None = None
    ) -> None:
        """``sweep`` holds seconds by number of tokens; ``drafts`` seconds a token by drafter.

        Raises:
            ValueError: a sweep that does not hold a single positive time.
        """
        if not sweep or not all(n > 0 and 0 < s < math.inf for n, s in sweep.items()):
            raise ValueError("a sweep needs at least one positive time")
        self._base = {n: math.log(s) for n, s in sorted(sweep.items())}
        self._offset = dict.fromkeys(self._base, 0.0)
        self._slowness = 0.0
        self._drafts = dict(drafts or {})
        self._passes = 0
        self._seen: dict[int, tuple[int, int]] = {}
        """Width -> (passes in this process, number of the last one)."""

    # -- reading -------------------------------------------------------------------------------

    def verify(self, width: int) -> float:
        """Expected seconds of a pass over ``width`` tokens now."""
        return math.exp(self._slowness) * self._quiet(width)

    def _quiet(self, width: int) -> float:
        known = self._base
        if width in known:
            return math.exp(known[width] + self._offset[width])
        below = max((n for n in known if n < width), default=None)
        above = min((n for n in known if n > width), default=None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None
            return self._quiet(nearest) * max(1.0, width / nearest)
        share = (width - below) / (above - below)
        return (1 - share) * self._quiet(below) + share * self._quiet(above)

    def draft(self, source: str) -> float:
        """Expected seconds for a token of that drafter; 0 where it was never seen."""
        return self._drafts.get(source, 0.0)

    # -- learning ------------------------------------------------------------------------------

    def passed(self, width: int, seconds: float) -> None:
        """A pass over ``width`` tokens took so long."""
        if seconds <= 0:
            return
        self._passes += 1
        count, _ = self._seen.get(width, (0, 0))
        elsewhere = max((last for n, (_, last) in self._seen.items() if n != width), default=0)
        self._seen[width] = (count + 1, self._passes)
        if count < _SETTLE and len(self._seen) > 1:
            return
        if width not in self._base:
            self._base[width], self._offset[width] = math.log(self._quiet(width)), 0.0
        own = self._base[width] + self._offset[width]
        surprise = _clamped(math.log(seconds) - own - self._slowness)
        if elsewhere and self._passes - elsewhere <= _RECENT:
            self._offset[width] += _SLOW * surprise
        self._slowness += _FAST * surprise

    def drafted(self, source: str, tokens: int, seconds: float) -> None:
        """Drafting ``tokens`` tokens took so long."""
        each = seconds / tokens
        known = self._drafts.get(source)
        if known is None or known <= 0:
            self._drafts[source] = each
        else:
            surprise = _clamped(math.log(max(each, 1e-9) / known))
            self._drafts[source] = known * math.exp(_SLOW * surprise)

    # -- keeping -------------------------------------------------------------------------------

    def curve(self) -> dict[int, float]:
        """Seconds by width, for keeping: with what was learnt, without the slowness of now."""
        return {n: self._quiet(n) for n in sorted(self._base)}

    def drafts(self) -> dict[str, float]:
        """Seconds a token by drafter, for keeping."""
        return dict(self._drafts)


def _clamped(x: float) -> float:
    return max(-_CLAMP, min(_CLAMP, x))
