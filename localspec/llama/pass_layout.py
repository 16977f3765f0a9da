"""The shape of a pass over several sequences: which are padded, so that llama.cpp makes it one.

llama.cpp cuts a pass into parts of equal rows for sequences of consecutive ids, and reads the
weights once for each part. Rows that nobody needs (padding) make parts equal; whether they cost
less than another part depends on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class PassTimes(Protocol):
    """What passes cost on this machine."""

    def verify(self, n: int) -> float:
        """Seconds of a pass over n rows."""
        ...


class EveryPassEqual:
    """Passes that take as long for few rows as for many, as on a GPU: one is better than two."""

    def verify(self, n: int) -> float:
        """A unit, and next to nothing for a row."""
        return 1.0 + 1e-3 * n


def padded(
    rows: Mapping[int, int], room: Mapping[int, int], times: PassTimes, idle: Sequence[int] = ()
) -> dict[int, int]:
    """Rows of each sequence in the pass, ids ascending; ``rows`` are those that are needed.

    No sequence gets more than it has ``room`` for; ``idle`` ones may be filled to close a gap
    between ids. Of the shapes tried (as needed; all as long as the longest; the short ones as long
    as some length between) the one of least time is taken.
    """
    ids = sorted(rows)
    lengths = sorted(set(rows.values()))
    gaps = [i for i in idle if ids[0] < i < ids[-1] and i not in rows]
    if len(lengths) == 1 and not gaps:
        return {i: rows[i] for i in ids}
    shapes = [{i: rows[i] for i in ids}]
    for least in lengths:
        steps = [least, lengths[-1]]
        shape = {i: max(rows[i], min(room[i], next(s for s in steps if s >= rows[i]))) for i in ids}
        shapes.append(shape)
        if gaps and all(room[i] >= least for i in gaps):
            filled = {**dict.fromkeys(gaps, least), **shape}
            shapes.append({i: filled[i] for i in sorted(filled)})
    return min(shapes, key=lambda shape: seconds(shape, times))


def seconds(rows: Mapping[int, int], times: PassTimes) -> float:
    """Seconds of a pass of this shape, in all its parts."""
    spent = 0.0
    for run in _runs(sorted(rows)):
        least = min(rows[i] for i in run)
        spent += times.verify(least * len(run))
        left = {i: rows[i] - least for i in run if rows[i] > least}
        spent += seconds(left, times) if left else 0.0
    return spent


def _runs(ids: Sequence[int]) -> list[list[int]]:
    """Runs of consecutive ids."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


__all__ = ["EveryPassEqual", "PassTimes", "padded", "seconds"]
