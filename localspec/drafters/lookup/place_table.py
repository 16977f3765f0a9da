"""A hash table of places that grows by pieces: no step of it takes long, however large it becomes.

It has a place for a hash, and a newer one replaces it. It is never made anew for a larger size: at
each size between a power of two and the next one, a hash goes to the slot that it will have at the
next one, or, where that is not there yet, to the one that it had before (linear hashing, Litwin
1980). A slot that is added begins as a copy of that one. So what was found before is found again,
and what is found may be the place of another hash: who asks has to compare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]
_FIRST = 1 << 12
"""Slots at first."""


class PlaceTable:
    """Places above 0 by hash; 0 is none."""

    def __init__(self, most: int) -> None:
        """``most`` slots. Memory is taken as they are added: what nobody wrote to takes none."""
        self._slots = np.empty(most, np.int32)
        self._slot = self._slots.data  # single items of it are read at a fifth of the cost
        self._size = min(most, _FIRST)
        self._slots[: self._size] = 0
        self._half = 1 << (self._size.bit_length() - 1)

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        return self._slots.itemsize * self._size

    def grow(self, size: int) -> None:
        """Have as many slots, or the most."""
        while self._size < min(size, len(self._slots)):
            until = min(size, len(self._slots), 2 * self._half)
            self._slots[self._size : until] = self._slots[
                self._size - self._half : until - self._half
            ]
            self._size = until
            if until == 2 * self._half:
                self._half = until

    def place(self, code: int) -> int:
        """The place of one hash."""
        slot = code & (2 * self._half - 1)
        return self._slot[slot if slot < self._size else slot - self._half]

    def places(self, codes: Hashes) -> Places:
        """The places of hashes."""
        found: Places = self._slots[self._slots_of(codes)].astype(np.int64)
        return found

    def put(self, codes: Hashes, places: Places) -> None:
        """Store a place for each hash; of equal ones the last one stays."""
        self._slots[self._slots_of(codes)] = places

    def _slots_of(self, codes: Hashes) -> Places:
        slots = (codes & np.uint64(2 * self._half - 1)).astype(np.int64)
        slots[slots >= self._size] -= self._half
        return slots
