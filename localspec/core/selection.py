"""Selects the largest logits of a row, without sorting it."""

from __future__ import annotations

import math

import numpy as np

from localspec.core.constraint import TokenMask
from localspec.core.errors import NotNumbersError
from localspec.core.kernel import RowKernel
from localspec.core.values import Ids, Logits


def require_finite(best: float, *, low: bool = False) -> None:
    """Refuse NaN and infinite logits; -inf passes where it is not the largest of all (``low``).

    Raises:
        NotNumbersError
    """
    if not (math.isfinite(best) or (low and best == -math.inf)):
        raise NotNumbersError(
            "the model returned logits that are not numbers; the file may be damaged: "
            "check it with `localspec doctor` or fetch it again"
        )


_FEW = 2048
"""Allowed tokens that are gathered one by one."""
_SPARE = 24
"""Candidates beyond the wanted ones, in case the mask forbids some of the best."""


def allowed_ids(row: Logits, mask: TokenMask, k: int, compiled: RowKernel | None) -> Ids:
    """Ids of the k largest logits of those that the mask allows, ascending; of all where k is 0.

    Usually the best tokens of the whole row are looked up in the mask, and enough of them pass.

    Raises:
        NotNumbersError: the row has none of the allowed tokens.
    """
    n = len(row)
    ids: Ids | None = None
    if mask.count > _FEW and 0 < k < n - _SPARE:
        wanted = k + _SPARE
        best = None
        if k == 1:
            best = np.array([np.argmax(row)], np.int32)
        elif compiled is not None and compiled.takes(row, wanted):
            best = compiled.best(row, wanted)
        if best is None:
            best = top_ids(row, wanted)
        best = best[mask.allows(best)]
        ids = best if len(best) >= k else None
    if ids is None:
        ids = mask.ids
        ids = ids if not len(ids) or ids[-1] < n else ids[ids < n]
    if not len(ids):
        require_finite(-math.inf)
    if k == 1 and len(ids) > 1:
        at = int(np.argmax(row[ids]))
        return ids[at : at + 1]
    return ids[top_ids(row[ids], k)] if 0 < k < len(ids) else ids


_ROWS = 64
_GROUPS = 256
"""Approximate number of groups of columns, whose maxima give a first bound."""


def top_ids(row: Logits, k: int) -> Ids:
    """Ids of the k largest logits, ascending; ties go to the smaller id. Fewer than k where fewer
    are finite.

    The row is read once, for the maxima of the columns of a (64, V / 64) view. The k-th largest of
    k groups' maxima or more is a bound that k entries reach; only columns that reach it are looked
    at again.
    """
    width = len(row) // _ROWS
    if width <= 2 * k:
        require_finite(float(row.max()))
        ids = np.flatnonzero(row > -np.inf)
        return _largest(ids, row[ids], k)
    body, tail = row[: width * _ROWS].reshape(_ROWS, width), row[width * _ROWS :]
    maxima = body.max(axis=0)
    bound = _bound(maxima, k)
    if bound == -np.inf:  # most tokens are forbidden
        require_finite(float(np.maximum(maxima.max(), tail.max(initial=-np.inf))))
        ids = np.flatnonzero(row > -np.inf)
        return _largest(ids, row[ids], k)
    columns = np.flatnonzero(maxima >= bound)
    block = body.take(columns, axis=1).ravel()
    places = np.flatnonzero(block >= bound)
    ids, values = columns[places % len(columns)] + places // len(columns) * width, block[places]
    if len(tail):
        require_finite(float(tail.max()), low=True)
        late = np.flatnonzero(tail >= bound)
        ids = np.concatenate([ids, late + width * _ROWS])
        values = np.concatenate([values, tail[late]])
    return _largest(ids, values, k)


def _bound(maxima: Logits, k: int) -> float:
    """A bound that at least k of the columns reach.

    Raises:
        NotNumbersError: a column has a NaN or an infinite logit.
    """
    each = len(maxima) // _GROUPS
    groups = len(maxima) // max(1, each)
    if each > 1 and groups > 2 * k:
        coarse = maxima[: groups * each].reshape(each, groups).max(axis=0)
        rest = maxima[groups * each :]
        top = float(np.maximum(coarse.max(), rest.max(initial=-np.inf)))  # NaN, if either is
    else:
        coarse, top = maxima, float(maxima.max())
    require_finite(top, low=True)
    return float(np.partition(coarse, len(coarse) - k)[len(coarse) - k])


def _largest(ids: np.ndarray[tuple[int], np.dtype[np.int64]], values: Logits, k: int) -> Ids:
    """The ids of the k largest values, ascending; ties go to the smaller id."""
    if len(ids) > k:
        threshold = np.partition(values, len(values) - k)[len(values) - k]
        above = ids[values > threshold]
        level = np.sort(ids[values == threshold])[: k - len(above)]
        ids = np.concatenate([above, level])
    return np.sort(ids).astype(np.int32)
