"""What drafts cost now: for this context length, this number of requests, this share of a pass.

All prices are in passes without a draft of the same requests, which is the time in which plain
decoding emits one token of each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.core.plan import NO_LIMIT
from localspec.policy.costs import Costs

Curve = NDArray[np.float64]
"""(K + 1,) cost of a target pass by draft length 0..K, in plain passes; the first is 1."""

MARGIN = 0.03
"""Tokens per round that a drafter that computes must be expected to gain, and share of a pass that
a wider one must take less to pad to it: measurements differ by as much."""
READ_EVERY = 16
"""Rounds between two readings of the cost curve."""
DOUBTFUL = 0.35
"""Standard deviation of a cost's logarithm from which on it may well be much less."""
UNSEEN = 0.4
"""Share of the extra time of wide passes that may be left, if the machine has got faster."""
DOUBT = 2.0
"""Standard deviations by which a belief may well be wrong."""
RECENT = 0.25
"""Weight of what was seen last in an estimate that follows it."""


@functools.cache
def zero_to(end: int) -> NDArray[np.int64]:
    """(end + 1,) the numbers 0 to ``end``, made once: making them takes longer than using them."""
    found = np.arange(end + 1)
    found.flags.writeable = False
    return found


class Prices:
    """The cost of drafts of each length by one drafter."""

    def __init__(
        self,
        curve: Curve,
        cost: float,
        measured: Curve | None = None,
        doubts: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """``cost`` is that of a drafted token; ``measured`` the curve before it was divided among
        requests; ``doubts`` are deviations of the logarithms of wide passes' extra time and of it.
        """
        self.curve, self.cost, self._doubts = curve, cost, doubts
        self.measured = curve if measured is None else measured
        self.costs = curve[1:] + zero_to(len(curve) - 1)[1:] * cost
        """(K,) cost of rounds with drafts of 1 to K tokens."""
        self.losses = np.maximum(self.costs - 1, 0.0)
        """(K,) what a rejected draft loses."""
        self.rejected = float(self.losses[0]) if len(self.losses) else 0.0
        """What a rejected draft of one token loses."""
        lengths = zero_to(len(self.losses))[1:]
        self.whole = np.minimum(self.losses.astype(np.int64), lengths)
        """(K,) whole tokens that make up for each loss, and the part of one besides."""
        self.part = np.where(self.whole < lengths, self.losses - self.whole, 0.0)

    @functools.cached_property
    def most_gain(self) -> float:
        """Tokens that a round gains if every token of the best length is accepted."""
        return most_gain(self.curve, self.cost)

    @functools.cached_property
    def at_best(self) -> Prices:
        """Prices as low as they may well be, if a sweep was disturbed or the machine got faster."""
        passes, drafts = (math.exp(-DOUBT * max(0.0, d - DOUBTFUL)) for d in self._doubts)
        return Prices(1 + min(UNSEEN, passes) * (self.curve - 1), self.cost * drafts)

    @property
    def free(self) -> Prices:
        """Prices if drafting a token took no time."""
        return Prices(self.curve, 0.0)


def most_gain(curve: Curve, cost: float) -> float:
    """Tokens that a round gains if every token of the best length is accepted."""
    lengths = zero_to(len(curve) - 1)[1:]
    gain = lengths - (curve[1:] - 1) - lengths * cost
    return float(gain.max(initial=-cost))


def row_factors(frequencies: Sequence[float]) -> list[float]:
    """What each request is charged of the extra time of a wider pass, by how often each of a round
    drafts, those of other policies included.

    Extra rows delay all, and serve those that draft: one that drafts alone pays for all, and where
    all draft each pays for its own rows. Fixed before a token is drawn.
    """
    total = sum(frequencies)
    return [len(frequencies) / (1 + total - own) for own in frequencies]


def quickest(seconds: NDArray[np.float64]) -> list[int]:
    """The quickest number of rows for a pass over at least 1, 2, ... rows; one is never padded."""
    rows = [*range(1, len(seconds) + 1)]
    best = len(seconds) - 1
    for i in range(len(seconds) - 2, 0, -1):
        if seconds[best] <= (1 - MARGIN) * seconds[i]:
            rows[i] = best + 1
        elif seconds[i] <= seconds[best]:
            best = i
    return rows


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


class PriceList:
    """The prices of this moment, read from the measured curves now and then only."""

    def __init__(
        self, curves: dict[int, Costs], k_max: int, shares: Mapping[str, float], *, pads: bool
    ) -> None:
        """``curves``, by bucket of context length, is updated; see `Controller` for the rest."""
        self._curves, self._k_max, self._read_shares, self.pads = curves, k_max, shares, pads
        self.replace({})

    def replace(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, if there are any."""
        if curves:
            self._curves.clear()
            self._curves.update(curves)
        self.bucket = min(self._curves)
        self.costs = self._curves[self.bucket]
        """The costs for the context length that was read last."""
        self.requests = 0
        self._prices: dict[tuple[str, float, int, int], Prices] = {}
        self.doubt = 0.0
        """Standard deviation of the logarithm of what a usual draft's pass costs."""
        self.measured_share = 1.0
        """See `Costs.measured_share`, of a usual draft's pass."""
        self.widths: Sequence[int] = ()
        """See `DraftPlan.widths`."""
        self.curve: Curve = np.ones(1)
        """The cost of a pass of all requests by draft length, padded where that is quicker."""
        self.unpadded: Curve = self.curve
        """The cost of passes that are not padded, as those of trees."""

    def read(self, length: int, requests: int, now: int) -> None:
        """Set the prices for so many requests with ``length`` tokens at most, in round ``now``."""
        curves, bucket = self._curves, bucket_of(length)
        if bucket not in curves:  # start from the current one: a longer context changes it slowly
            curves[bucket] = self.costs.copy()
        if bucket == self.bucket and requests == self.requests and now % READ_EVERY != 1:
            return
        self.bucket, self.costs, self.requests = bucket, curves[bucket], requests
        seconds = self.costs.passes_seconds(requests * zero_to(self._k_max + 1)[1:])
        self.curve = self.unpadded = seconds / seconds[0]
        self.doubt, self.measured_share = self.costs.doubt(4), self.costs.measured_share(requests)
        self.widths = quickest(seconds) if self.pads and requests == 1 else ()
        if self.widths:
            self.curve = self.curve[np.array(self.widths) - 1]
        self._prices.clear()

    @property
    def doubtful(self) -> bool:
        """Whether what passes over several tokens cost is uncertain, since something changed."""
        return self.doubt > DOUBTFUL

    def token(self, source: str, rows: int = 1) -> float:
        """Cost of a drafted token to every request, in plain passes, where so many draft."""
        seconds = self.costs.token_seconds(source) * self.drafter_passes([rows])
        return seconds / self.costs.pass_seconds(self.requests)

    def drafter_passes(self, rows: Sequence[int]) -> float:
        """Passes of a drafter over one row that take as long as passes over so many, which are
        taken to last like those of the target.
        """
        one = self.costs.pass_seconds(1)
        return sum(self.costs.pass_seconds(n) / one for n in rows)

    def of(
        self,
        source: str,
        *,
        copies: bool,
        factor: float = 1.0,
        breadth: int = 1,
        room: int = NO_LIMIT,
    ) -> Prices:
        """Prices of a drafter's drafts of ``room`` tokens at most, with ``breadth`` nodes at each
        depth: of one that copies for a request that is charged ``factor`` of the extra time of a
        pass, see `row_factors`; of one that computes for all requests, which draft together.
        """
        factor = round(8 * factor) / 8 if copies else 1.0
        key = source, factor, breadth, min(room, self._k_max)
        found = self._prices.get(key)
        if found is None:
            alone = breadth > 1 and self.requests == 1
            measured = (self.unpadded if alone else self.curve)[::breadth][: 1 + room]
            curve = measured if factor == 1.0 else 1 + (measured - 1) * factor
            cost = 0.0 if copies else self.token(source, self.requests)  # a row of each
            doubts = self.doubt, self.costs.draft_doubt(source)
            found = self._prices[key] = Prices(curve, cost, measured, doubts)
        return found

    def reading(self, source: str, unread: int) -> float:
        """Cost of reading so many tokens of one request and computing one, to all requests, summed
        up; as the target reads, if unknown.
        """
        return self.requests * self.token(source) * self.reading_passes(source, unread)

    def reading_passes(self, source: str, unread: int) -> float:
        """Passes of a drafter over one row that take as long as reading so many tokens."""
        if source in self._read_shares:
            return max(1.0, self._read_shares[source] * unread)
        return self.costs.pass_seconds(max(1, unread)) / self.costs.pass_seconds(1)
