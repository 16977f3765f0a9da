"""Which bytes of a file are missing, and which connection fetches which of them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

LEAST_SPLIT = 16 << 20
"""Bytes below which the rest of a span is not divided between two connections."""

ByteRange = tuple[int, int]
"""From, and up to without."""


@dataclass(slots=True)
class Claim:
    """What one connection fetches: ``at`` moves to ``end``, which another may bring nearer."""

    at: int
    end: int


class MissingRanges:
    """The missing bytes of a file of ``size`` bytes, given out in blocks from front to back.

    So all before `frontier` is there and can be hashed, and holes are never far behind the end.
    Safe to use from several threads.
    """

    def __init__(self, size: int, missing: Sequence[ByteRange], block: int) -> None:
        self._size, self._block = size, block
        self._gaps = [span for span in missing if span[0] < span[1]]
        self._claims: list[Claim] = []
        self._lock = threading.Lock()

    def claim(self) -> Claim | None:
        """The next block to fetch, or the second half of the largest that is under way."""
        with self._lock:
            if self._gaps:
                start, end = self._gaps[0]
                mine = Claim(start, min(end, start + self._block))
                self._cut_first_gap(mine.end)
            else:
                largest = max(self._claims, key=lambda c: c.end - c.at, default=None)
                if largest is None or largest.end - largest.at < 2 * LEAST_SPLIT:
                    return None
                middle = (largest.at + largest.end) // 2
                mine = Claim(middle, largest.end)
                largest.end = middle
            self._claims.append(mine)
            return mine

    def extend(self, claim: Claim) -> bool:
        """Whether the connection of a finished claim may go on with the block behind it."""
        with self._lock:
            gap = next((g for g in self._gaps if g[0] == claim.end), None)
            if gap is None or gap != self._gaps[0]:
                return False
            claim.end = min(gap[1], gap[0] + self._block)
            self._cut_first_gap(claim.end)
            return True

    def reach(self, claim: Claim) -> int:
        """Up to where nobody else fetches behind a claim."""
        with self._lock:
            return next((end for start, end in self._gaps if start == claim.end), claim.end)

    def advance(self, claim: Claim, n_bytes: int) -> None:
        """Note that so many bytes more of a claim are on disk."""
        with self._lock:
            claim.at = min(claim.at + n_bytes, claim.end)

    def release(self, claim: Claim) -> None:
        """Give back what is left of a claim."""
        with self._lock:
            self._claims.remove(claim)
            if claim.at < claim.end:
                self._gaps = _merged([*self._gaps, (claim.at, claim.end)])

    def restart(self, claim: Claim) -> None:
        """All is missing again; the claim, which must be the only one, begins at the front."""
        with self._lock:
            claim.at, claim.end = 0, min(self._size, self._block)
            self._gaps = [(claim.end, self._size)] if claim.end < self._size else []

    @property
    def missing(self) -> list[ByteRange]:
        """MissingRanges that are not on disk yet, in order."""
        with self._lock:
            return _merged([*self._gaps, *((c.at, c.end) for c in self._claims)])

    @property
    def frontier(self) -> int:
        """All bytes before this one are on disk."""
        missing = self.missing
        return missing[0][0] if missing else self._size

    @property
    def unclaimed(self) -> int:
        """Bytes that nobody fetches yet."""
        with self._lock:
            return sum(end - start for start, end in self._gaps)

    @property
    def divisible(self) -> bool:
        """Whether what is under way is enough for one more connection."""
        with self._lock:
            return any(c.end - c.at >= 2 * LEAST_SPLIT for c in self._claims)

    def _cut_first_gap(self, start: int) -> None:
        _, end = self._gaps.pop(0)
        if start < end:
            self._gaps.insert(0, (start, end))


def _merged(spans: Sequence[ByteRange]) -> list[ByteRange]:
    found: list[ByteRange] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def read(note: Path, part: Path, size: int) -> list[ByteRange] | None:
    """What a partial file lacks; None if it cannot be told, and it is to be begun again.

    Without a note it lacks its end. A note may name bytes that have come since it was written, but
    never the other way round.
    """
    try:
        have = part.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return [(0, size)]
    try:
        text = note.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [(have, size)] if have <= size else None
    try:
        found = [(int(start), int(end)) for start, end in json.loads(text)["missing"]]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    edges = [0, *(edge for span in found for edge in span), size]
    ordered = all(before <= after for before, after in pairwise(edges))
    filled_to = found[-1][0] if found and found[-1][1] == size else size
    return found if ordered and filled_to <= have <= size else None


def write(note: Path, missing: Sequence[ByteRange]) -> None:
    """Note what a partial file lacks: before bytes are written behind a hole.

    Raises:
        OSError: the disk refuses.
    """
    fresh = note.with_name(f"{note.name}.{os.getpid()}")
    fresh.write_text(json.dumps({"missing": missing}), encoding="utf-8")
    fresh.replace(note)
