"""The speed of a reply relative to plain decoding, estimated from its own rounds.

Both speeds are of the same moments: for every round, the policy's costs estimate how long a pass
over one token would have taken at that time, since they are updated with every pass. Times that
were measured for another reply, or before other programs started, are never used.
"""

from __future__ import annotations

import math

from localspec.core.events import QUICKEST_PLAIN, Speedup
from localspec.core.round_counts import RoundFigures
from localspec.policy.costs import Costs

_STALL = 3.0
"""Rounds that take longer than this multiple of their expected time were interrupted by the machine
and are not counted."""
_FEWEST = 8
"""Fewest rounds of an estimate."""
_KNOWN = 9
"""Passes that the expected time of a pass rests on: its estimate forgets a fifth with each."""
_LEAST_ERROR = 0.05
"""Relative error of the expected times on a quiet machine."""


class SpeedupEstimate:
    """Sums over the rounds of one reply."""

    def __init__(self) -> None:
        self._rounds = self._emitted = 0
        self._drafted = False
        self._seconds = self._plain_seconds = 0.0
        self._surprise = self._surprise_squares = 0.0

    def add(self, done: RoundFigures, costs: Costs | None) -> None:
        """Add a round of this request alone; ``costs`` have learnt from it."""
        if costs is None or done.verify_seconds <= 0:
            return
        drafting, emitted = done.draft_seconds, done.emitted
        expected = costs.pass_seconds(1 + done.drafted) + drafting
        surprise = math.log(done.seconds / expected)
        if surprise > math.log(_STALL):
            return
        own = max(0.0, done.seconds - drafting - done.verify_seconds)
        share = done.verify_seconds / (done.verify_seconds + own)
        # The costs are those of a whole round. What a round does beside its pass is done for every
        # token of plain decoding too; counting it by token leaves out the work of the policy.
        one = costs.pass_seconds(1) * share + own / max(1, emitted)
        self._rounds += 1
        self._emitted += emitted
        self._drafted = self._drafted or done.drafted > 0
        self._seconds += done.seconds
        self._plain_seconds += emitted * one
        self._surprise += surprise
        self._surprise_squares += surprise * surprise

    def speedup(self, outside_rounds: float) -> Speedup | None:
        """The estimate so far; None where nothing was drafted, or too little is known.

        ``outside_rounds`` are seconds per token, which both ways of decoding pay.
        """
        if self._rounds < _FEWEST or not self._drafted:
            return None
        both = self._emitted * max(0.0, outside_rounds)
        plain, drafted = self._plain_seconds + both, self._seconds + both
        if self._emitted > QUICKEST_PLAIN * plain:
            return None
        mean = self._surprise / self._rounds
        variance = max(0.0, self._surprise_squares / self._rounds - mean * mean)
        error = 2 * math.sqrt(variance * (1 / self._rounds + 1 / _KNOWN))
        return Speedup(plain / drafted, max(_LEAST_ERROR, error))
