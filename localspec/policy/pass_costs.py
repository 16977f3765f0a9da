"""The cost of passes by draft length, for the context length and the number of requests of now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from localspec.policy.costs import Costs
from localspec.policy.gain import Curve


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


class PassCosts:
    """Reads the measured curves as the controller needs them; read again now and then only."""

    def __init__(self, curves: dict[int, Costs], k_max: int, every: int) -> None:
        """``curves`` by bucket of context length, at least one, is updated; drafts have ``k_max``
        tokens at most; a curve is read again after ``every`` rounds.
        """
        self._curves = curves
        self._k_max = k_max
        self._every = every
        self._bucket = min(curves)
        self._batch = 0
        self.costs = curves[self._bucket]
        """The costs of the bucket that was read last."""
        self.curve: Curve = np.ones(1)
        """(k_max + 1,) cost of a pass of all requests by draft length, in passes without drafts."""

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
        if bucket != self._bucket or batch != self._batch or now % self._every == 1:
            self._bucket, self.costs, self._batch = bucket, curves[bucket], batch
            seconds = [self.costs.verify(batch * (k + 1)) for k in range(self._k_max + 1)]
            self.curve = np.array(seconds) / seconds[0]


__all__ = ["PassCosts", "bucket_of"]
