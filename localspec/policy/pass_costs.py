"""The cost of passes by draft length, for the context length and the number of requests of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.policy.costs import Costs
from localspec.policy.gain import Curve, lengths_of


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


CLEARLY = 0.97
"""A pass is padded to a wider one that takes this share of its time at most: measurements differ
by as much."""


def quickest(seconds: NDArray[np.float64]) -> list[int]:
    """The quickest number of rows for a pass over at least 1, 2, ... rows, by the seconds of each;
    a pass over a single row is plain decoding and is not padded.
    """
    rows = [*range(1, len(seconds) + 1)]
    best = len(seconds) - 1
    for i in range(len(seconds) - 2, 0, -1):
        if seconds[best] <= CLEARLY * seconds[i]:
            rows[i] = best + 1
        elif seconds[i] <= seconds[best]:
            best = i
    return rows


_SOON = 4
"""Rounds after which a curve is read again of which much has changed."""
_USUAL = 4
"""The width of a usual draft."""
_NARROW = 8
"""Widths of usual drafts."""


class PassCosts:
    """Reads the measured curves as the controller needs them; read again now and then only."""

    def __init__(
        self, curves: dict[int, Costs], k_max: int, every: int, *, pads: bool = False
    ) -> None:
        """``curves`` by bucket of context length, at least one, is updated; drafts have ``k_max``
        tokens at most; a curve is read again after ``every`` rounds. With ``pads``, a pass over one
        request may have more rows than it needs, where it is quicker then.
        """
        self._curves = curves
        self._k_max = k_max
        self._every = every
        self._bucket = min(curves)
        self._batch = 0
        self._pads = pads
        self._changes = 0
        """`Costs.changes` when they were read last."""
        self._draft_doubts: dict[str, float] = {}
        self._padded_from: tuple[int, ...] = ()
        """Narrow widths that passes are padded from."""
        self.doubt = 0.0
        """See `Costs.doubt`, of a usual draft."""
        self.widths: Sequence[int] = ()
        """See `DraftPlan.widths`."""
        self.costs = curves[self._bucket]
        """The costs of the bucket that was read last."""
        self.curve: Curve = np.ones(1)
        """(k_max + 1,) cost of a pass of all requests by draft length, in passes without drafts."""
        self.unpadded: Curve = self.curve
        """The same for passes that are not padded, as of trees."""

    @property
    def bucket(self) -> int:
        """The bucket that was read last; see `bucket_of`."""
        return self._bucket

    def draft_doubt(self, source: str) -> float:
        """See `Costs.draft_doubt`."""
        if source not in self._draft_doubts:
            self._draft_doubts[source] = self.costs.draft_doubt(source)
        return self._draft_doubts[source]

    def untried(self) -> int:
        """The narrowest width that passes are padded from although none of it was seen: it may have
        been measured wrongly. 0 if there is none.
        """
        return next((n for n in self._padded_from if not self.costs.seen(n)), 0)

    def replace(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements."""
        self._curves.clear()
        self._curves.update(curves)
        self._bucket, self._batch = min(curves), 0
        self.costs = curves[self._bucket]

    def read(self, length: int, batch: int, now: int) -> None:
        """Set the curve for ``batch`` requests with ``length`` tokens at most, in round ``now``."""
        curves, bucket = self._curves, bucket_of(length)
        if bucket not in curves:  # start from the current one: a longer context changes it slowly
            known = {n: self.costs.verify(n) for n in self.costs.curve()}
            curves[bucket] = Costs(known, self.costs.drafts(), self.costs.tuning)
        changed = bucket != self._bucket or batch != self._batch
        if now % _SOON == 1:
            changed = changed or self.costs.changes != self._changes
        if changed or now % self._every == 1:
            self._changes, self._draft_doubts = curves[bucket].changes, {}
            self._bucket, self.costs, self._batch = bucket, curves[bucket], batch
            seconds = self.costs.passes(batch * lengths_of(self._k_max + 2))
            self.curve = self.unpadded = seconds / seconds[0]
            self.doubt = self.costs.doubt(_USUAL)
            self.widths = quickest(seconds) if self._pads and batch == 1 else ()
            rows = enumerate(self.widths[:_NARROW], 1)
            self._padded_from = tuple(n for n, wider in rows if wider > n)
            if self.widths:
                self.curve = self.curve[np.array(self.widths) - 1]


__all__ = ["PassCosts", "bucket_of", "quickest"]
