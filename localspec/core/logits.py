"""Logits processing: from a row of logits to the distribution that is sampled from.

One function serves the target (p) and every drafter (q); plain decoding uses it too. The grammar's
mask comes first; the rest is in llama.cpp's order: bias, penalties, top-k, top-p, min-p,
temperature. Only the candidates that survive are ever exponentiated, unless the settings keep the
whole vocabulary. Where `localspec.core.kernel` was compiled, it does the usual case in one call;
what follows here is its reference.

Letters: V vocabulary, s support.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Sequence

import numpy as np

from localspec.core import kernel
from localspec.core.constraint import Constraint, TokenMask
from localspec.core.kernel import RowKernel
from localspec.core.sampling_params import GREEDY, Sampling
from localspec.core.values import Distribution, Ids, Logits, Probs, one_hot
from localspec.errors import NothingAllowedError, NotNumbersError, UsageError


class LogitsProcessor:
    """Turns rows of logits into distributions under one set of sampling parameters.

    A pure function of (row, tokens before it): it keeps no history of its own, so a draft's
    prefix, a branch of a tree and plain decoding are all served alike.
    """

    __slots__ = ("_bias_ids", "_bias_values", "_changes", "_kernel", "constraint", "sampling")

    def __init__(
        self, sampling: Sampling, n_vocab: int, constraint: Constraint | None = None
    ) -> None:
        """``constraint`` is the grammar of the request, if it has one."""
        self.sampling = sampling
        self.constraint = constraint
        self._kernel = kernel.loaded()
        ids = [token for token, _ in sampling.logit_bias]
        wrong = [token for token in ids if not 0 <= token < n_vocab]
        if wrong:
            raise UsageError(f"logit bias for token {wrong[0]}, but ids run to {n_vocab - 1}")
        self._bias_ids = np.array(ids, np.int64)
        self._bias_values = np.array([v for _, v in sampling.logit_bias], np.float32)
        self._changes = bool(ids) or sampling.penalises
        """Whether logits change before candidates are selected."""

    @property
    def lookback(self) -> int:
        """The number of tokens before a row that it reads; 0 if none. A grammar reads them all."""
        if self.constraint is not None:
            return sys.maxsize
        return self.sampling.penalty_last_n if self.sampling.penalises else 0

    def __call__(self, row: Logits, before: Sequence[int]) -> Distribution:
        """The distribution of the next token by ``row`` (V,), after the tokens ``before``.

        ``before`` needs only the last ``lookback`` tokens. The row is not changed.

        Raises:
            NothingAllowedError: bias and grammar together forbid every token of the row.
            GrammarError: the grammar cannot be followed any further.
            NotNumbersError: the row contains NaN.
        """
        if not self._changes and self.constraint is None:
            found = self._compiled(row)
            if found is not None:
                return found
        mask = self.allowed(before)
        try:
            return self._distribution(row, before, mask)
        except NotNumbersError:
            if not math.isfinite(float(row.max())):
                raise
            if mask is not None:
                raise NothingAllowedError(
                    "the grammar allows no token that the model and the logit bias allow"
                ) from None
            if len(self._bias_ids):
                raise NothingAllowedError(
                    "the logit bias forbids every token; leave it one to choose"
                ) from None
            raise

    def by_reference(self) -> LogitsProcessor:
        """The same processing without the compiled kernel."""
        found = copy.copy(self)
        found._kernel = None  # noqa: SLF001 - of this class
        return found

    def allowed(self, before: Sequence[int]) -> TokenMask | None:
        """The tokens that the grammar allows after ``before``; None where it allows all."""
        return None if self.constraint is None else self.constraint.mask(before)

    def warmed(self, sampling: Sampling) -> LogitsProcessor:
        """The same processing under another sampling with the same bias and grammar."""
        n_vocab = 1 + max((token for token, _ in sampling.logit_bias), default=0)
        return LogitsProcessor(sampling, n_vocab, self.constraint)

    def _compiled(self, row: Logits) -> Distribution | None:
        """The distribution by the compiled kernel; None where it does not apply."""
        s, compiled = self.sampling, self._kernel
        if compiled is None or s.temperature == 0 or not compiled.takes(row, s.top_k):
            return None
        return compiled.distribution(row, s.top_k, s.top_p, s.min_p, s.temperature)

    def _distribution(
        self, row: Logits, before: Sequence[int], mask: TokenMask | None
    ) -> Distribution:
        s = self.sampling
        if self._changes:
            row = row.copy()
            present = self._bias_ids < len(row)  # a draft's vocabulary may be padded less
            np.add.at(row, self._bias_ids[present], self._bias_values[present])
            if s.penalises:
                _penalise(row, before[-s.penalty_last_n :], s)
        most = 1 if s.temperature == 0 else s.top_k
        if mask is None and self._changes:
            found = self._compiled(row)
            if found is not None:
                return found
        ids: Ids | None
        if mask is not None:
            ids = _allowed(row, mask, most, self._kernel)
        elif most == 1:
            ids = np.array([np.argmax(row)], np.int32)
        else:
            ids = top_ids(row, most) if 0 < most < len(row) else None
        if most == 1 and ids is not None:
            require_finite(row[ids[0]])
            return one_hot(int(ids[0]))
        logits = (row if ids is None else row[ids]).astype(np.float64)
        top = logits.max()
        require_finite(top)
        logits -= top
        keep = _nucleus(logits, s.top_p, s.min_p)
        if keep is not None:
            logits = logits[keep]
            ids = keep.astype(np.int32) if ids is None else ids[keep]
        logits /= s.temperature
        probs = np.exp(logits)
        if ids is None or probs[probs.argmin()] == 0.0:  # forbidden or underflowed tokens
            support = np.flatnonzero(probs)
            probs = probs[support]
            ids = support.astype(np.int32) if ids is None else ids[support]
        probs /= probs.sum()
        return Distribution(ids, probs)


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


def _penalise(row: Logits, lately: Sequence[int], s: Sampling) -> None:
    ids, counts = np.unique(np.asarray(lately, np.int64), return_counts=True)
    seen = row[ids]
    seen = np.where(seen <= 0, seen * s.repeat_penalty, seen / s.repeat_penalty)
    row[ids] = seen - counts * s.frequency_penalty - s.presence_penalty


_FEW = 2048
"""Allowed tokens that are gathered one by one."""
_SPARE = 24
"""Candidates beyond the wanted ones, in case the mask forbids some of the best."""


def _allowed(row: Logits, mask: TokenMask, k: int, compiled: RowKernel | None) -> Ids:
    """Ids of the k largest logits of those that the mask allows, ascending; of all where k is 0.

    Mostly without a look at all that the mask allows: the best of the whole row are looked up in
    it, and enough of them pass.

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
"""Groups of columns about, whose maxima give a first bound."""


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


def _nucleus(
    logits: Probs, top_p: float, min_p: float
) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Indices (ascending) that top-p, then min-p keep of ``logits`` (maximum 0); None for all.

    Ties at the border of top-p are broken by the smaller index.
    """
    keep = None
    if top_p < 1.0:
        probs = np.exp(logits)
        order = np.argsort(-probs, kind="stable")
        reached = np.cumsum(probs[order])
        n = int(np.searchsorted(reached, top_p * reached[-1])) + 1
        if n < len(order):
            keep = np.sort(order[:n])
    if min_p > 0.0:
        floor = math.log(min_p)
        if keep is None:
            passing = np.flatnonzero(logits >= floor)
            keep = passing if len(passing) < len(logits) else None
        else:
            keep = keep[logits[keep] >= floor]
    return keep


__all__ = ["GREEDY", "LogitsProcessor", "Sampling", "require_finite", "top_ids"]
