"""The shape of a pass over several sequences: which are padded, so that llama.cpp makes it one.

llama.cpp cuts a pass into parts of equal rows for consecutive streams, and reads the weights once
for each part. Padding (rows without use) makes parts equal; whether they cost less than
another part depends on the machine, and so does whether some widths are quicker than less wide
ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol


class PassTimes(Protocol):
    """The seconds of passes on this machine."""

    def pass_seconds(self, n: int) -> float:
        """Seconds of a pass over n rows."""
        ...


class EveryPassEqual:
    """Passes that take as long for few rows as for many, as on a GPU: one is better than two."""

    def pass_seconds(self, n: int) -> float:
        """A unit, and next to nothing for a row."""
        return 1.0 + 1e-3 * n


_BESIDE = 3
"""Most idle neighbours that a pass is widened by: kernels take rows by fours, or twos."""


def padded(
    rows: Mapping[int, int],
    room: Mapping[int, int],
    times: PassTimes,
    idle: Sequence[int] = (),
    *,
    most: int,
) -> dict[int, int]:
    """Rows of each stream in the pass, in ascending order; ``rows`` are those that are needed.

    No stream gets more than it has ``room`` for, and all together no more than ``most``, or than
    are needed; ``idle`` ones may be filled, to close a gap or to reach a width that is quicker. Of
    the shapes tried (as needed, with idle neighbours where all are equally long; all as long as the
    longest; the short ones as long as some length between) the one of least time is taken.
    """
    ids = sorted(rows)
    lengths = sorted(set(rows.values()))
    gaps = [i for i in idle if ids[0] < i < ids[-1] and i not in rows]
    shapes = [{i: rows[i] for i in ids}]
    for least in lengths if gaps or len(lengths) > 1 else ():
        steps = [least, lengths[-1]]
        shape = {i: max(rows[i], min(room[i], next(s for s in steps if s >= rows[i]))) for i in ids}
        shapes.append(shape)
        if gaps and all(room[i] >= least for i in gaps):
            shapes.append({**dict.fromkeys(gaps, least), **shape})
    beside = _beside(ids, [i for i in idle if room[i] >= lengths[0]])
    if beside and len(lengths) == 1:
        shapes += [
            {**dict.fromkeys(beside[:n], lengths[0]), **shape}
            for shape in shapes
            for n in range(1, 1 + len(beside))
        ]
    fitting = [shapes[0], *(shape for shape in shapes[1:] if sum(shape.values()) <= most)]
    best = min(fitting, key=lambda shape: seconds(shape, times))
    return {i: best[i] for i in sorted(best)}


def _beside(ids: Sequence[int], idle: Sequence[int]) -> list[int]:
    """The nearest idle streams that continue the streams of a pass without a gap."""
    after = [*range(ids[-1] + 1, ids[-1] + 1 + _BESIDE)]
    before = [*range(ids[0] - 1, ids[0] - 1 - _BESIDE, -1)]
    run = [
        i
        for side in (after, before)
        for i in itertools.takewhile(lambda neighbour: neighbour in idle, side)
    ]
    return run[:_BESIDE]


def seconds(rows: Mapping[int, int], times: PassTimes) -> float:
    """Seconds of a pass of this shape, in all its parts."""
    spent = 0.0
    for run in runs(sorted(rows)):
        least = min(rows[i] for i in run)
        spent += times.pass_seconds(least * len(run))
        left = {i: rows[i] - least for i in run if rows[i] > least}
        spent += seconds(left, times) if left else 0.0
    return spent


def runs(ids: Sequence[int]) -> list[list[int]]:
    """Runs of consecutive ids."""
    runs: list[list[int]] = []
    for i in ids:
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs
