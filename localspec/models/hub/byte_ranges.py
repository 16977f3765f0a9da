"""The byte ranges that a file lacks, and which connection fetches which of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from localspec.core.files import checked
from localspec.core.files.whole_file import replace_shared

LEAST_SPLIT = 16 << 20
"""Bytes; a smaller rest of a claim is not divided between two connections."""

ByteRange = tuple[int, int]
"""Start, and end (exclusive)."""


@dataclass(slots=True)
class Claim:
    """The range that one connection fetches: ``at`` advances to ``end``, which may come closer."""

    at: int
    end: int


class MissingRanges:
    """The missing bytes of a file of ``size`` bytes, handed out in blocks from front to back.

    So everything before `frontier` can be hashed already, and holes stay close to it. Safe to use
    from several threads.
    """

    def __init__(self, size: int, missing: Sequence[ByteRange], block: int) -> None:
        self._size, self._block = size, block
        self._gaps = [gap for gap in missing if gap[0] < gap[1]]
        self._claims: list[Claim] = []
        self._lock = threading.Lock()

    def claim(self) -> Claim | None:
        """The next block to fetch; where all are claimed, the second half of the largest claim."""
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
        """Extend a finished claim by the next block; False where that block is not the next one to
        fetch.
        """
        with self._lock:
            gap = next((g for g in self._gaps if g[0] == claim.end), None)
            if gap is None or gap != self._gaps[0]:
                return False
            claim.end = min(gap[1], gap[0] + self._block)
            self._cut_first_gap(claim.end)
            return True

    def reach(self, claim: Claim) -> int:
        """End of the unclaimed range that follows a claim; the claim's own end if there is none."""
        with self._lock:
            return next((end for start, end in self._gaps if start == claim.end), claim.end)

    def advance(self, claim: Claim, n_bytes: int) -> None:
        """Note that ``n_bytes`` more of a claim are on disk."""
        with self._lock:
            claim.at = min(claim.at + n_bytes, claim.end)

    def release(self, claim: Claim) -> None:
        """Return the rest of a claim to the missing ranges."""
        with self._lock:
            self._claims.remove(claim)
            if claim.at < claim.end:
                self._gaps = _merged([*self._gaps, (claim.at, claim.end)])

    def restart(self, claim: Claim) -> None:
        """Mark everything missing; the claim, which must be the only one, starts at 0."""
        with self._lock:
            claim.at, claim.end = 0, min(self._size, self._block)
            self._gaps = [(claim.end, self._size)] if claim.end < self._size else []

    @property
    def missing(self) -> list[ByteRange]:
        """Ranges that are not on disk yet, in order."""
        with self._lock:
            return _merged([*self._gaps, *((c.at, c.end) for c in self._claims)])

    @property
    def frontier(self) -> int:
        """The first missing byte: all before it are on disk."""
        missing = self.missing
        return missing[0][0] if missing else self._size

    @property
    def unclaimed(self) -> int:
        """Missing bytes that no connection has claimed."""
        with self._lock:
            return sum(end - start for start, end in self._gaps)

    @property
    def divisible(self) -> bool:
        """Whether a claim is large enough to be divided with one more connection."""
        with self._lock:
            return any(c.end - c.at >= 2 * LEAST_SPLIT for c in self._claims)

    def _cut_first_gap(self, start: int) -> None:
        _, end = self._gaps.pop(0)
        if start < end:
            self._gaps.insert(0, (start, end))


def _merged(ranges: Sequence[ByteRange]) -> list[ByteRange]:
    found: list[ByteRange] = []
    for start, end in sorted(part for part in ranges if part[0] < part[1]):
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def read(note: Path, part: Path, size: int) -> list[ByteRange] | None:
    """The ranges that a partial file lacks; None where they are unknown, so it must start again.

    Without a note only the end is missing. A note may list bytes that have arrived since it was
    written, but every missing byte is in it.
    """
    try:
        have = part.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return [(0, size)]
    try:
        text = checked.content(note, 1 << 26).decode("utf-8", "replace")
    except FileNotFoundError:
        return [(have, size)] if have <= size else None
    try:
        found = [(int(start), int(end)) for start, end in json.loads(text)["missing"]]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    edges = [0, *(edge for pair in found for edge in pair), size]
    ordered = all(before <= after for before, after in pairwise(edges))
    filled_to = found[-1][0] if found and found[-1][1] == size else size
    return found if ordered and filled_to <= have <= size else None


def write(note: Path, missing: Sequence[ByteRange]) -> None:
    """Save which ranges a partial file lacks; to be called before bytes are written behind a hole.

    Raises:
        OSError: the note cannot be written.
    """
    replace_shared(note, json.dumps({"missing": missing}))
