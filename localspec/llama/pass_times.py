"""Seconds of passes, estimated from those that were computed: for targets without a sweep."""

from __future__ import annotations

from collections import deque

from localspec.llama.pass_layout import EveryPassEqual

_KEPT = 8
"""Latest passes of a width, whose least time counts: other programs make some of them slow."""
_KNOWN = 2
"""Passes of a width before its time is known: the first one builds a graph."""


class ObservedTimes:
    """`PassTimes` learned from the passes of this session; between widths that were seen, in
    proportion. Before any was, every pass is taken to cost the same.
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = {}
        self._seconds: dict[int, float] = {}
        """Width -> seconds, of widths that are known; in ascending order."""

    def learn(self, n: int, seconds: float) -> None:
        """A pass over n rows, computed in one part, took ``seconds``."""
        seen = self._seen.setdefault(n, deque(maxlen=_KEPT))
        seen.append(seconds)
        if len(seen) >= _KNOWN:
            if n not in self._seconds:
                self._seconds = dict(sorted({**self._seconds, n: seconds}.items()))
            self._seconds[n] = min(seen)

    def verify(self, n: int) -> float:
        """See `PassTimes`."""
        known = self._seconds
        if n in known:
            return known[n]
        below = max((width for width in known if width < n), default=0)
        above = min((width for width in known if width > n), default=0)
        if not below and not above:
            return EveryPassEqual().verify(n)
        if not above:
            return known[below] * n / below
        if not below:
            return known[above]
        share = (n - below) / (above - below)
        return (1 - share) * known[below] + share * known[above]
