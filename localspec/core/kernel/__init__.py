"""The compiled kernel for rows of logits: optional, with numpy as reference and fallback.

`rows.c` does in one pass over a row what `localspec.core.logits` and `Noise.draw` do in some thirty
numpy calls. It gives the same tokens; probabilities may differ in the last bit, by the exp and log
of libm. `localspec.core.kernel.build` compiles it into the environment, and checks it against the
reference; without it nothing changes but the time of a round.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import threading
from pathlib import Path

import numpy as np

from localspec.core.values import Distribution, Ids, Logits

SOURCE = Path(__file__).with_name("rows.c")
MOST = 256
"""Candidates that it selects at most."""
VARIABLE = "LOCALSPEC_ROW_KERNEL"
"""``off`` in this environment variable keeps to numpy."""


def library() -> Path:
    """The file of the compiled kernel, which need not exist; its name changes with the source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return Path(sys.prefix) / "lib" / "localspec" / f"rows-{digest}.so"


_FLOATS = np.dtype(np.float32)


class _Buffers(threading.local):
    """What a thread gets its results in."""

    def __init__(self) -> None:
        self.ids, self.probs = np.empty(MOST, np.int32), np.empty(MOST)
        self.mass = ctypes.c_double()
        self.at = self.ids.ctypes.data, self.probs.ctypes.data, ctypes.addressof(self.mass)
        self.last: Distribution | None = None
        """The one whose numbers are in the buffers."""


class RowKernel:
    """A compiled kernel, for any threads."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the library cannot be loaded."""
        found = ctypes.PyDLL(str(path))
        address, real, count = ctypes.c_void_p, ctypes.c_double, ctypes.c_int
        self._best = found.localspec_best
        self._best.argtypes = [address, ctypes.c_int64, count, address]
        self._distribution = found.localspec_distribution
        self._distribution.argtypes = [
            *(address, ctypes.c_int64, count),
            *(real, real, real, address, address),
        ]
        self._greedy = found.localspec_greedy
        self._greedy.argtypes = [address, ctypes.c_int64, ctypes.c_float, address]
        self._greedy.restype = ctypes.c_int64
        self._whole = found.localspec_whole
        self._whole.argtypes = [address, ctypes.c_int64, real, address]
        self._whole.restype = ctypes.c_int64
        self._draw = found.localspec_draw
        self._draw.argtypes = [address, address, count, ctypes.c_uint64]
        self._buffers = _Buffers()

    @staticmethod
    def takes(row: Logits, k: int) -> bool:
        """Whether it selects k logits of this row: few, of contiguous numbers of 32 bits."""
        return 1 < k <= MOST and k < len(row) and _readable(row)

    def best(self, row: Logits, k: int) -> Ids | None:
        """Ids of the k largest logits, ascending; None where the row has NaN or +inf."""
        own = self._buffers
        own.last = None
        n = self._best(row.ctypes.data, len(row), k, own.at[0])
        return own.ids[:n].copy() if n >= 0 else None

    def distribution(
        self, row: Logits, k: int, top_p: float, min_p: float, temperature: float
    ) -> Distribution | None:
        """What is left of a row after top-k, top-p, min-p and temperature; None where it has NaN or
        +inf, or nothing above -inf.
        """
        own = self._buffers
        ids, probs, _ = own.at
        n = self._distribution(row.ctypes.data, len(row), k, top_p, min_p, temperature, ids, probs)
        if n < 1:
            return None
        found = own.last = Distribution(own.ids[:n].copy(), own.probs[:n].copy())
        return found

    def whole(self, row: Logits, temperature: float) -> Distribution | None:
        """A row at a temperature, nothing of it cut off; None where it has NaN or +inf, or nothing
        above -inf, or is of another kind.
        """
        if not _readable(row):
            return None
        probs = np.empty(len(row))
        n = self._whole(row.ctypes.data, len(row), temperature, probs.ctypes.data)
        if n < 1:
            return None
        if n == len(row):
            return Distribution(_all_ids(n), probs)
        ids = np.flatnonzero(probs >= 0)
        return Distribution(ids.astype(np.int32), probs[ids])

    def largest(self, row: Logits) -> int | None:
        """Id of the largest logit, the first of equal ones; None where the row has NaN or +inf, or
        nothing above -inf, or is of another kind.
        """
        if not _readable(row):
            return None
        place: int = self._greedy(row.ctypes.data, len(row), 0.0, self._buffers.at[2])
        return place if place >= 0 else None

    def head(self, row: Logits, reach: float) -> float | None:
        """The sum of exp(x - largest) over logits no further than ``reach`` below the largest; None
        where the row has NaN or +inf, or is of another kind.
        """
        if not _readable(row):
            return None
        own = self._buffers
        place = self._greedy(row.ctypes.data, len(row), reach, own.at[2])
        return own.mass.value if place >= 0 else None

    def draw(self, distribution: Distribution, key: int) -> int:
        """The token of the largest log p + gumbel, with the noise of ``key``."""
        ids, probs = distribution.ids, distribution.probs
        own = self._buffers
        if distribution is own.last:  # draws mostly follow at once
            at, weights, _ = own.at
        else:
            at, weights = ids.ctypes.data, probs.ctypes.data
        return int(ids[self._draw(at, weights, len(ids), key)])


def _readable(row: Logits) -> bool:
    return row.dtype == _FLOATS and row.flags.c_contiguous


@functools.lru_cache(maxsize=4)
def _all_ids(n: int) -> Ids:
    """(n,) every id."""
    found = np.arange(n, dtype=np.int32)
    found.flags.writeable = False
    return found


@functools.cache
def loaded() -> RowKernel | None:
    """The kernel of this environment; None if it was not compiled or is switched off."""
    if os.environ.get(VARIABLE) == "off":
        return None
    try:
        return RowKernel(library())
    except OSError:
        return None


__all__ = ["MOST", "SOURCE", "RowKernel", "library", "loaded"]
