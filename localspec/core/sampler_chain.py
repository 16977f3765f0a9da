"""llama.cpp's further samplers: DRY, XTC, locally typical, top-n-sigma, dynamic temperature,
Mirostat, and any order of the usual ones.

Each is a function of the candidates, the tokens before and, for XTC, the position's own noise, so
that a drafted position is computed like any other. Mirostat alone has a state, mu: a function of
the emitted tokens and their probabilities, which `LogitsProcessor.after` moves on.

Definitions: llama.cpp's src/llama-sampler.cpp and common/sampling.cpp. DRY: p-e-w 2024 and pi6am's
restart sequences; XTC: p-e-w 2024; typical: Meister et al. 2023, "Locally typical sampling";
top-n-sigma: Tang et al. 2024; Mirostat: Basu et al. 2021.

Letters: V vocabulary, s candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.kernel import RowKernel
from localspec.core.noise import Noise, Stream
from localspec.core.repetition import Breakers, Repetitions
from localspec.core.sampler_settings import SMALLEST
from localspec.core.sampling_params import Sampling
from localspec.core.selection import require_finite, top_ids
from localspec.core.values import Distribution, Ids, Logits, Probs

Places = NDArray[np.intp]

_NOTHING = 1e-300
_MIROSTAT_M = 100
"""Candidates from which Mirostat 1 estimates Zipf's exponent, as llama.cpp has it."""


@dataclass(slots=True)
class Candidates:
    """What is left of a row. A logit of -inf is impossible but, as in llama.cpp, still counted."""

    logits: NDArray[Any]
    """(s,) of 32 or 64 bits; not the caller's row once a sampler writes to it."""
    ids: Ids | None
    """(s,) ascending; None: all of the row."""
    owned: bool = False
    """Whether `logits` may be written to."""
    _order: Places | None = None
    """`best_first`, while that is known: sorting all of a vocabulary takes as long as a pass."""
    _probs: Probs | None = None
    """`probs`, while they are known."""

    def __len__(self) -> int:
        return len(self.logits)

    def keep(self, places: Places) -> None:
        """Keep the candidates at these places, in any order."""
        kept = np.zeros(len(self), bool)
        kept[places] = True
        places = np.flatnonzero(kept)  # sorted, in a tenth of the time that sorting takes
        if self._order is not None:
            self._order = (np.cumsum(kept) - 1)[self._order[kept[self._order]]]
        self._probs = None
        self.logits = self.logits[places]
        self.ids = places.astype(np.int32) if self.ids is None else self.ids[places]
        self.owned = True

    def written(self) -> NDArray[Any]:
        """The logits, to be written to."""
        self._order = self._probs = None
        if not self.owned:
            self.logits, self.owned = self.logits.copy(), True
        return self.logits

    def find(self, ids: Places) -> tuple[Places, Places]:
        """The places of those of some ascending ids that are candidates, and which they are."""
        if self.ids is None:
            which = np.flatnonzero((ids >= 0) & (ids < len(self.logits)))
            return ids[which], which
        at = np.minimum(self.ids.searchsorted(ids), max(0, len(self.ids) - 1))
        which = np.flatnonzero(self.ids[at] == ids) if len(self.ids) else np.empty(0, np.intp)
        return at[which], which

    def best_first(self) -> Places:
        """The places, the largest logit first; ties go to the smaller id."""
        if self._order is None:
            self._order = np.argsort(-self.logits, kind="stable")
        return self._order

    def exclude_below(self, bound: float) -> None:
        """Make candidates below a logit impossible."""
        below = self.logits < bound
        order = self._order
        self.written()[below] = -np.inf
        if order is not None:  # what is impossible is in the order of its ids
            n = len(order) - int(np.count_nonzero(self.logits == -np.inf))
            self._order = np.concatenate([order[:n], np.sort(order[n:])])

    def divide(self, temperature: float) -> None:
        """Divide the logits, in 64 bits."""
        if self.logits.dtype != np.float32:  # two of 64 bits that differ may become equal
            self._order = None
        self._probs = None
        self.logits, self.owned = self.logits.astype(np.float64) / temperature, True

    def probs(self) -> Probs:
        """(s,) the softmax of the logits; not to be written to."""
        if self._probs is None:
            logits = self.logits.astype(np.float64)
            logits -= logits.max()
            found: Probs = np.exp(logits, out=logits)
            found /= found.sum()
            self._probs = found
        return self._probs

    def distribution(self) -> Distribution:
        """What is drawn from."""
        probs = self.probs()
        places = np.flatnonzero(probs > _NOTHING)
        probs = probs[places]
        ids = places.astype(np.int32) if self.ids is None else self.ids[places]
        return Distribution(ids, probs / probs.sum())


Sampler = Callable[[Candidates, Sequence[int]], None]


class SamplerChain:
    """The samplers of one request, in its order."""

    def __init__(self, sampling: Sampling, noise: Noise | None, breakers: Breakers) -> None:
        """``noise`` has XTC's coins; ``breakers`` are what DRY's texts are as tokens.

        Raises:
            ValueError: XTC without noise.
        """
        self._s, self.noise, self.breakers = sampling, noise, breakers
        self._repetitions = Repetitions(breakers)
        if sampling.excludes and noise is None and "xtc" in sampling.order:
            raise ValueError("XTC needs the noise of its request")
        s = sampling
        ways: dict[str, tuple[bool, Sampler]] = {
            "penalties": (s.penalises, self._penalties),
            "dry": (s.dries, self._dry),
            "top_n_sigma": (s.top_n_sigma > 0, self._top_n_sigma),
            "top_k": (s.top_k > 0, self._top_k),
            "typ_p": (s.typical_p < 1, self._typical),
            "top_p": (s.top_p < 1, self._top_p),
            "min_p": (s.min_p > 0, self._min_p),
            "xtc": (s.excludes, self._xtc),
            "temperature": (True, self._temperature),
        }
        names = ("temperature",) if s.mirostat else s.order
        self._steps = [sampler for name in names for on, sampler in (ways[name],) if on]
        self._kernel: RowKernel | None = None

    def distribution(
        self,
        row: Logits,
        ids: Ids | None,
        before: Sequence[int],
        mu: float,
        compiled: RowKernel | None,
    ) -> Distribution:
        """The distribution of a row (V,), of which only ``ids`` are allowed (None: all), after the
        tokens ``before``; ``mu`` is Mirostat's.

        Raises:
            NotNumbersError: the row has NaN or +inf, or nothing above -inf.
        """
        self._kernel = compiled if ids is None else None
        found = Candidates(row if ids is None else row[ids], ids, owned=ids is not None)
        require_finite(float(found.logits.max()) if len(found) else -math.inf)
        for sampler in self._steps:
            sampler(found, before)
        if self._s.mirostat:
            truncated(found, self._s.mirostat, mu, len(row))
        return found.distribution()

    def _penalties(self, found: Candidates, before: Sequence[int]) -> None:
        s = self._s
        lately = before[-s.penalty_last_n :]
        tokens, counts = np.unique(np.asarray(lately, np.intp), return_counts=True)
        places, which = found.find(tokens)
        logits, counts = found.written(), counts[which]
        seen = logits[places]
        seen = np.where(seen <= 0, seen * s.repeat_penalty, seen / s.repeat_penalty)
        logits[places] = seen - counts * s.frequency_penalty - s.presence_penalty

    def _dry(self, found: Candidates, before: Sequence[int]) -> None:
        s = self._s
        lately = np.array(before[-s.dry_penalty_last_n :], np.int64)
        most = most_exponent(s.dry_base)
        longest = self._repetitions.continuations(lately[lately >= 0], s.dry_allowed_length, most)
        if not longest:
            return
        tokens = np.array(sorted(longest), np.intp)
        lengths = np.array([longest[int(token)] for token in tokens])
        places, which = found.find(tokens)
        exponents = np.minimum(lengths[which] - s.dry_allowed_length, most)
        found.written()[places] -= s.dry_multiplier * s.dry_base**exponents

    def _top_n_sigma(self, found: Candidates, _: Sequence[int]) -> None:
        if len(found) < 2:
            return
        possible = found.logits[found.logits > -np.inf].astype(np.float64)
        bound = possible.max() - self._s.top_n_sigma * possible.std()
        found.exclude_below(bound)

    def _top_k(self, found: Candidates, _: Sequence[int]) -> None:
        k, logits, compiled = self._s.top_k, found.logits, self._kernel
        if k >= len(found):
            return
        best = None
        if compiled is not None and found.ids is None and compiled.takes(logits, k):
            best = compiled.best(logits, k)
        if best is None:
            best = top_ids(logits, k)
        if len(best) < k:  # the rest is impossible, but counts
            found.keep(found.best_first()[:k])
        else:
            found.keep(best.astype(np.intp))

    def _typical(self, found: Candidates, _: Sequence[int]) -> None:
        order = found.best_first()
        probs = found.probs()[order]
        possible = probs > 0
        logs = np.log(probs, out=np.full(len(probs), -np.inf), where=possible)
        entropy = -float(probs[possible] @ logs[possible])
        shifted = np.abs(-logs - entropy)
        first = np.argsort(shifted, kind="stable")
        order, probs = order[first], probs[first]
        reached = int(np.cumsum(probs).searchsorted(self._s.typical_p, side="right")) + 1
        found.keep(order[:reached])

    def _top_p(self, found: Candidates, _: Sequence[int]) -> None:
        order = found.best_first()
        reached = np.cumsum(found.probs()[order])
        n = int(reached.searchsorted(self._s.top_p * reached[-1])) + 1
        if n < len(found):
            found.keep(order[:n])

    def _min_p(self, found: Candidates, _: Sequence[int]) -> None:
        floor = float(found.logits.max()) + math.log(self._s.min_p)
        passing = np.flatnonzero(found.logits >= floor)
        if len(passing) < len(found):
            found.keep(passing)

    def _xtc(self, found: Candidates, before: Sequence[int]) -> None:
        s = self._s
        if len(found) < 2:
            return
        assert self.noise is not None
        if self.noise.uniform(len(before), 0, Stream.EXCLUDE) > s.xtc_probability:
            return
        probs = found.probs()
        over = int(np.count_nonzero((probs >= s.xtc_threshold) & (probs > 0)))
        if over > 1:
            found.keep(found.best_first()[over - 1 :])

    def _temperature(self, found: Candidates, _: Sequence[int]) -> None:
        s, temperature = self._s, self._s.temperature
        if s.dynatemp_range > 0 and not s.mirostat:
            if len(found) < 2:
                return
            probs = found.probs()
            some = probs[probs > 0]
            entropy = -float(some @ np.log(some)) / math.log(len(found))
            low = max(0.0, temperature - s.dynatemp_range)
            high = temperature + s.dynatemp_range
            temperature = low + (high - low) * max(0.0, entropy) ** s.dynatemp_exponent
        if temperature <= 0:
            best = int(np.argmax(found.logits))
            logits = found.written()
            top = logits[best]
            logits[:] = -np.inf
            logits[best] = top
            return
        # Not shifted: penalties that follow depend on the sign.
        found.divide(max(temperature, SMALLEST))


def most_exponent(base: float) -> int:
    """The exponent from which DRY's penalty grows no further, as in llama.cpp: numbers of 32 bits
    hold no larger one. Where the base is 1, the penalty never grows.
    """
    return int(88.7228391 / math.log(base)) if base > 1.000001 else 0


def truncated(found: Candidates, version: int, mu: float, n_vocab: int) -> None:
    """Leave Mirostat's candidates: version 2 those whose surprise is at most ``mu`` bits, version 1
    the k best by Zipf's law.
    """
    order = found.best_first()
    probs = found.probs()[order]
    possible = int(np.count_nonzero(probs > 0))
    probs = probs[:possible]
    if version == 2:
        n = int(np.count_nonzero(-np.log2(probs) <= mu))
    else:
        n = zipf_cut(probs[:_MIROSTAT_M], mu, n_vocab)
    found.keep(order[: max(1, min(n, possible))])


def zipf_cut(probs: Probs, mu: float, n_vocab: int) -> int:
    """The k of Mirostat 1 from the largest probabilities, descending (Basu et al. 2021, algorithm
    1). A k without a bound is all of the vocabulary, also where llama.cpp's overflows.
    """
    if len(probs) < 2:
        return 1
    ranks = np.arange(1, len(probs), dtype=np.float64)
    t = np.log((ranks + 1) / ranks)
    b = np.log(probs[:-1] / probs[1:])
    s_hat = float(t @ b) / float(t @ t)
    excess = s_hat - 1
    with np.errstate(all="ignore"):
        if abs(excess) < 1e-9:
            share = np.float64(1 / math.log(n_vocab))
        else:
            share = excess / (1 - np.power(np.float64(n_vocab), -excess))
        k = np.power(share * np.exp2(mu), np.float64(1) / np.float64(s_hat))
    if np.isnan(k):
        return 1
    return max(1, int(min(k, n_vocab)))


def mirostat_start(sampling: Sampling) -> float:
    """mu before the first token of a reply."""
    return 2.0 * sampling.mirostat_tau


def mirostat_after(sampling: Sampling, mu: float, p: Distribution, token: int) -> float:
    """mu after ``token`` was emitted where its distribution was ``p``."""
    surprise = -math.log2(max(p.probability(token), _NOTHING))
    return mu - sampling.mirostat_eta * (surprise - sampling.mirostat_tau)
