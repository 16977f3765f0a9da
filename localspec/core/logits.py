"""Logits processing: from a row of logits to the distribution that is sampled from.

One function serves the target (p) and every drafter (q); plain decoding uses it too. The grammar's
mask comes first; the rest is in llama.cpp's order: bias, penalties, top-k, top-p, min-p,
temperature. Further samplers, and other orders, are in `localspec.core.sampler_chain`. Only the
candidates that survive are ever exponentiated, unless the settings keep the whole vocabulary. Where
`localspec.core.kernel` was compiled, it does the usual case in one call; what follows here is its
reference.

Letters: V vocabulary, s support.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np

from localspec.core import kernel, sampler_chain
from localspec.core.constraint import Constraint, TokenMask
from localspec.core.errors import NothingAllowedError, NotNumbersError, UsageError
from localspec.core.noise import Noise
from localspec.core.repetition import NO_BREAKERS, Breakers
from localspec.core.sampler_chain import SamplerChain
from localspec.core.sampling_params import GREEDY, Sampling
from localspec.core.selection import allowed_ids, require_finite, top_ids
from localspec.core.values import Distribution, Ids, Logits, Probs, one_hot

_NOTHING = 1e-300
"""Tokens whose probability is below this share of the highest are left out: it might be 0 once
it is normalised."""


class LogitsProcessor:
    """Turns rows of logits into distributions under one set of sampling parameters.

    A pure function of (row, tokens before it): it keeps no history of its own, so a draft's
    prefix, a branch of a tree and plain decoding are all served alike. Under Mirostat it is that of
    one place of a reply, and `after` gives that of the next.
    """

    __slots__ = (
        "_bias_ids",
        "_bias_values",
        "_chain",
        "_changes",
        "_cut",
        "_kernel",
        "_mu",
        "constraint",
        "moves",
        "sampling",
    )

    def __init__(
        self,
        sampling: Sampling,
        n_vocab: int,
        constraint: Constraint | None = None,
        *,
        noise: Noise | None = None,
        breakers: Breakers = NO_BREAKERS,
    ) -> None:
        """``constraint`` is the grammar of the request, if it has one, and ``noise`` its
        randomness, of which XTC's coins are part; ``breakers`` are DRY's, as tokens.
        """
        self.sampling = sampling
        self.constraint = constraint
        self.moves = sampling.mirostat > 0
        """Whether `after` gives another one: emitted tokens change what follows."""
        self._mu = sampler_chain.mirostat_start(sampling)
        self._chain = SamplerChain(sampling, noise, breakers) if sampling.chained else None
        self._kernel = kernel.loaded()
        s = sampling
        self._cut = kernel.Cut(s.top_k, s.top_p, s.min_p, s.temperature)
        ids = [token for token, _ in sampling.logit_bias]
        wrong = [token for token in ids if not 0 <= token < n_vocab]
        if wrong:
            raise UsageError(f"logit bias for token {wrong[0]}, but ids run to {n_vocab - 1}")
        self._bias_ids = np.array(ids, np.int64)
        self._bias_values = np.array([v for _, v in sampling.logit_bias], np.float32)
        self._changes = bool(ids) or sampling.penalises or self._chain is not None
        """Whether logits change before candidates are selected."""

    @property
    def reads_text(self) -> bool:
        """Whether a distribution depends on the tokens before its row."""
        if self._chain is not None:
            return True
        return self.constraint is not None or self.sampling.penalises

    def after(self, p: Distribution, token: int) -> LogitsProcessor:
        """The processor of the next place, once ``token`` was emitted where its distribution was
        ``p``: the same one, unless it `moves`.
        """
        if not self.moves:
            return self
        found = copy.copy(self)
        found._mu = sampler_chain.mirostat_after(self.sampling, self._mu, p, token)  # noqa: SLF001 - of this class
        return found

    def __call__(self, row: Logits, before: Sequence[int]) -> Distribution:
        """The distribution of the next token by ``row`` (V,), after the tokens ``before``.

        ``before`` is the whole text; where nothing of it is read (`reads_text`), it may be empty.
        The row is not changed.

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
            if self._chain is not None:
                return self._chained(self._chain, row, before, mask)
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

    @property
    def together(self) -> int:
        """Number of rows that `ahead` computes in the time of one; 1 where each depends on the
        tokens before it, or the kernel does not compute them.
        """
        compiled = self._kernel
        if compiled is None or self._changes or self.constraint is not None:
            return 1
        selects = self.sampling.temperature > 0 and self.sampling.top_k > 1
        return compiled.together if selects else 1

    def ahead(self, rows: Logits) -> Sequence[Distribution]:
        """The distributions of the first ``together`` of several rows (n, V); none where there is
        only one row.
        """
        compiled = self._kernel
        if compiled is None or len(rows) == 1 or self.together == 1:
            return ()
        if not (compiled.takes(rows[0], self.sampling.top_k) and rows.flags.c_contiguous):
            return ()
        return compiled.distributions(rows, self._cut)

    def by_reference(self) -> LogitsProcessor:
        """The same processing without the compiled kernel."""
        found = copy.copy(self)
        found._kernel = None  # noqa: SLF001 - of this class
        return found

    def allowed(self, before: Sequence[int]) -> TokenMask | None:
        """The tokens that the grammar allows after ``before``; None where it allows all."""
        return None if self.constraint is None else self.constraint.mask(before)

    def warmed(self, sampling: Sampling) -> LogitsProcessor:
        """The same processing at another temperature: ``sampling`` has the same bias."""
        n_vocab = 1 + max((token for token, _ in sampling.logit_bias), default=0)
        chain = self._chain
        noise, breakers = (None, NO_BREAKERS) if chain is None else (chain.noise, chain.breakers)
        found = LogitsProcessor(sampling, n_vocab, self.constraint, noise=noise, breakers=breakers)
        found._mu = self._mu
        return found

    def _compiled(self, row: Logits) -> Distribution | None:
        """The distribution by the compiled kernel; None where it does not apply."""
        s, compiled = self.sampling, self._kernel
        if compiled is None:
            return None
        if s.temperature == 0 or s.top_k == 1:
            token = compiled.largest(row)
            return None if token is None else one_hot(token)
        if compiled.takes(row, s.top_k):
            return compiled.distribution(row, self._cut)
        if s.top_k == 0 and s.top_p == 1 and s.min_p == 0:
            return compiled.whole(row, s.temperature)
        return None

    def _biased(self, row: Logits) -> Logits:
        """A copy of the row with the logit bias."""
        row = row.copy()
        present = self._bias_ids < len(row)  # a draft's vocabulary may be padded less
        np.add.at(row, self._bias_ids[present], self._bias_values[present])
        return row

    def _chained(
        self, chain: SamplerChain, row: Logits, before: Sequence[int], mask: TokenMask | None
    ) -> Distribution:
        """The distribution by further samplers, or in another order."""
        if len(self._bias_ids):
            row = self._biased(row)
        ids = None if mask is None else allowed_ids(row, mask, 0, self._kernel)
        return chain.distribution(row, ids, before, self._mu, self._kernel)

    def _distribution(
        self, row: Logits, before: Sequence[int], mask: TokenMask | None
    ) -> Distribution:
        s = self.sampling
        if self._changes:
            row = self._biased(row)
            if s.penalises:
                _penalise(row, before[-s.penalty_last_n :], s)
        most = 1 if s.temperature == 0 else s.top_k
        if mask is None and self._changes:
            found = self._compiled(row)
            if found is not None:
                return found
        ids: Ids | None
        if mask is not None:
            ids = allowed_ids(row, mask, most, self._kernel)
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
        if ids is None or probs[probs.argmin()] < _NOTHING:  # forbidden or underflowed tokens
            support = np.flatnonzero(probs >= _NOTHING)
            probs = probs[support]
            ids = support.astype(np.int32) if ids is None else ids[support]
        probs /= probs.sum()
        return Distribution(ids, probs)


def _penalise(row: Logits, lately: Sequence[int], s: Sampling) -> None:
    ids, counts = np.unique(np.asarray(lately, np.int64), return_counts=True)
    first = int(ids.searchsorted(0))  # below are rows of pictures
    known = int(ids.searchsorted(len(row)))  # a draft's vocabulary may be padded less
    ids, counts = ids[first:known], counts[first:known]
    seen = row[ids]
    seen = np.where(seen <= 0, seen * s.repeat_penalty, seen / s.repeat_penalty)
    row[ids] = seen - counts * s.frequency_penalty - s.presence_penalty


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


__all__ = ["GREEDY", "LogitsProcessor", "Sampling"]
