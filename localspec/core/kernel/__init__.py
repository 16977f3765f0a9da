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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.core.values import Distribution, Ids, Logits, Probs

MOST = 256
"""Candidates that it selects at most."""
_FLOATS = np.dtype(np.float32)

SOURCE = Path(__file__).with_name("rows.c")
VARIABLE = "LOCALSPEC_ROW_KERNEL"
"""``off`` in this environment variable keeps to numpy."""


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that llama.cpp computes with, where OpenMP keeps them."""

    parallel: int
    """Address of the `GOMP_parallel` that llama.cpp calls."""
    threads: int


class _Rows:
    """Room for the results of several rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ids, self.probs = np.empty((count, MOST), np.int32), np.empty((count, MOST))
        self.held = np.empty(count, np.int32)
        self.at = self.ids.ctypes.data, self.probs.ctypes.data, self.held.ctypes.data
        rows = zip(self.ids, self.probs, strict=True)
        self.places = [(ids.ctypes.data, probs.ctypes.data) for ids, probs in rows]


class _Buffers(threading.local):
    """The buffers for one thread's results."""

    def __init__(self) -> None:
        self.ids, self.probs = np.empty(MOST, np.int32), np.empty(MOST)
        self.mass = ctypes.c_double()
        self.at = self.ids.ctypes.data, self.probs.ctypes.data, ctypes.addressof(self.mass)
        self.team: Team | None = None
        self.rooms = {1: _Rows(1)}
        self.rows = self.rooms[1]
        self.known: dict[int, tuple[Distribution, int, int]] = {}
        """Distributions whose numbers are still in the buffers, by identity, with two addresses."""


class Cut:
    """Top-k, top-p, min-p and temperature, as the kernel reads them."""

    def __init__(self, k: int, top_p: float, min_p: float, temperature: float) -> None:
        self._settings = _Settings(top_p, min_p, temperature, k)
        self.at = ctypes.addressof(self._settings)


class _Settings(ctypes.Structure):
    _fields_ = (
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("temperature", ctypes.c_double),
        ("k", ctypes.c_int),
    )


class RowKernel:
    """A compiled kernel, for any threads."""

    def __init__(self, path: Path) -> None:
        """Raises LocalspecError where the library cannot be loaded, or is not to be trusted."""
        found = native.opened(path)
        address, real, count = ctypes.c_void_p, ctypes.c_double, ctypes.c_int
        self._best = found.localspec_best
        self._best.argtypes = [address, ctypes.c_int64, count, address]
        self._distribution = found.localspec_distribution
        self._distribution.argtypes = [address, ctypes.c_int64, address, address, address]
        self._distributions = found.localspec_distributions
        self._distributions.argtypes = [
            *(address, ctypes.c_int64, count),
            *(address, address, address, address),
        ]
        self._distributions.restype = None
        self._overlaps = found.localspec_overlaps
        self._overlaps.argtypes = [*(address, address, count) * 2, address, count, address]
        self._overlaps.restype = None
        self._team = found.localspec_team
        self._team.argtypes, self._team.restype = [address, ctypes.c_uint], None
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
        own.known = {}
        n = self._best(row.ctypes.data, len(row), k, own.at[0])
        return own.ids[:n].copy() if n >= 0 else None

    def distribution(self, row: Logits, cut: Cut) -> Distribution | None:
        """The distribution of a row after the cut; None where the row has NaN or +inf, or nothing
        above -inf.
        """
        own = self._buffers
        ids, probs, _ = own.at
        n = self._distribution(row.ctypes.data, len(row), cut.at, ids, probs)
        if n < 1:
            return None
        found = Distribution(own.ids[:n].copy(), own.probs[:n].copy())
        own.known = {id(found): (found, ids, probs)}
        return found

    def meet(self, team: Team | None) -> None:
        """Compute with these threads from now on: those of llama.cpp wait for about a millisecond
        after a pass. None: compute alone.
        """
        own = self._buffers
        if own.team != team:
            own.team = team
            threads = 1 if team is None else team.threads
            self._team(None if team is None else team.parallel, threads)
            if threads not in own.rooms:
                own.rooms[threads] = _Rows(threads)
            own.rows = own.rooms[threads]

    @property
    def together(self) -> int:
        """Rows that `distributions` computes in the time of one."""
        return self._buffers.rows.count

    def distributions(self, rows: Logits, cut: Cut) -> list[Distribution]:
        """`distribution` of each of the first rows of (n, V), as many as come ``together``; only
        those before the first one that has none.
        """
        own = self._buffers
        room = own.rows
        count = min(len(rows), room.count)
        self._distributions(rows.ctypes.data, rows.shape[1], count, cut.at, *room.at)
        found = []
        own.known = {}
        for i, n in enumerate(room.held[:count].tolist()):
            if n < 1:
                break
            found.append(Distribution(room.ids[i, :n].copy(), room.probs[i, :n].copy()))
            own.known[id(found[-1])] = found[-1], *room.places[i]
        return found

    def overlaps(self, p: Distribution, q: Distribution, exponents: Probs) -> Probs | None:
        """(e,) sum(min(p, q^s)) for each exponent s, q^s normalised; None where q has too many
        tokens.
        """
        if len(q.ids) > MOST:
            return None
        found = np.empty(len(exponents))
        self._overlaps(
            *(p.ids.ctypes.data, p.probs.ctypes.data, len(p.ids)),
            *(q.ids.ctypes.data, q.probs.ctypes.data, len(q.ids)),
            *(exponents.ctypes.data, len(exponents), found.ctypes.data),
        )
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
        ids = distribution.ids
        known = self._buffers.known.get(id(distribution))
        if known is not None:  # draws mostly follow at once
            _, at, weights = known
        else:
            at, weights = ids.ctypes.data, distribution.probs.ctypes.data
        return int(ids[self._draw(at, weights, len(ids), key)])


def _readable(row: Logits) -> bool:
    return row.dtype == _FLOATS and row.flags.c_contiguous


@functools.lru_cache(maxsize=4)
def _all_ids(n: int) -> Ids:
    """(n,) every id."""
    found = np.arange(n, dtype=np.int32)
    found.flags.writeable = False
    return found


def library() -> Path:
    """The file of the compiled kernel, which need not exist; its name changes with the source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return Path(sys.prefix) / "lib" / "localspec" / f"rows-{digest}.so"


@functools.cache
def loaded() -> RowKernel | None:
    """The kernel of this environment; None if it was not compiled, is not to be trusted, or is
    switched off.
    """
    if os.environ.get(VARIABLE) == "off":
        return None
    try:
        return RowKernel(library())
    except LocalspecError:
        return None


def refusal() -> str:
    """Why a kernel that is there whole is not used; "" where it is, or where there is none."""
    if not native.is_stored(library()):
        return ""
    try:
        native.trusted(library())
    except LocalspecError as error:
        return str(error)
    return ""


__all__ = ["MOST", "SOURCE", "Cut", "RowKernel", "Team", "library", "loaded", "refusal"]
