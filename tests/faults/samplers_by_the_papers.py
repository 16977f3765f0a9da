"""The samplers of plain decoding written down again, from the papers and llama.cpp's documentation
alone: no line is shared with `localspec.core.logits`, `sampler_chain`, `repetition` or
`localspec.generation.infill_sampling`.

Dictionaries of Python numbers. Until a temperature divides them, logits are rounded to 32 bits, as
in llama.cpp. What has a logit of -inf is impossible, but is counted, as there.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from localspec.core.sampling_params import Sampling


@dataclass(frozen=True)
class Infill:
    """The sampler infill: the text of each token, and the tokens that end a reply."""

    pieces: Sequence[bytes]
    ends: AbstractSet[int]
    end: int
    """The one that is said where nothing is sure enough."""


@dataclass(frozen=True)
class Place:
    """What a distribution depends on besides its row and the settings."""

    before: Sequence[int]
    coin: float = 1.0
    """XTC's number of this place."""
    mu: float = math.inf
    """Mirostat's."""
    breakers: Mapping[int, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    """Texts that no repetition of DRY goes beyond: by the first token, what has to follow it."""


class Samplers:
    """The candidates of one row, and what each sampler leaves of them."""

    def __init__(
        self, x: Mapping[int, float], settings: Sampling, place: Place, n_vocab: int
    ) -> None:
        """``x`` has the logits of all tokens that are allowed, bias included."""
        self._x, self._s, self._place, self._n = dict(x), settings, place, n_vocab
        self._divided = False

    def chances(self) -> dict[int, float]:
        """Probabilities after all samplers, of what is possible."""
        names = ("temperature",) if self._s.mirostat else self._s.order
        for name in names:
            getattr(self, name)()
        if self._s.mirostat:
            self._mirostat()
        return {i: p for i, p in self._p().items() if p > 0}

    def penalties(self) -> None:
        """Keskar et al. 2019, "CTRL", and those of frequency and presence."""
        s = self._s
        lately = self._place.before[-s.penalty_last_n :] if s.penalty_last_n else ()
        for token, times in Counter(lately).items():
            if token in self._x:
                r, x = self._rounded(s.repeat_penalty), self._x[token]
                x = float(self._rounded(x * r if x <= 0 else x / r))
                self._x[token] = self._rounded(x - times * s.frequency_penalty - s.presence_penalty)

    def dry(self) -> None:
        """p-e-w 2024: what would go on with a repetition."""
        s, found = self._s, dict[int, int]()
        text = [*self._place.before[-s.dry_penalty_last_n :]] if s.dry_penalty_last_n else []
        most = self._since_a_breaker(text)
        for at in range(1, len(text)):
            long = 0
            while long < min(at, most) and text[at - 1 - long] == text[-1 - long]:
                long += 1
            if long >= s.dry_allowed_length and () not in self._place.breakers.get(text[at], ()):
                found[text[at]] = max(found.get(text[at], 0), long)
        for token, long in found.items() if s.dry_multiplier else ():
            if token in self._x:
                penalty = s.dry_multiplier * s.dry_base ** (long - s.dry_allowed_length)
                self._x[token] = self._rounded(float(self._x[token]) - penalty)

    def _since_a_breaker(self, text: Sequence[int]) -> int:
        for start in reversed(range(len(text))):
            after = tuple(text[start + 1 :])
            fits = [len(t) for t in self._breakers_at(text[start]) if after[: len(t)] == t]
            if fits:
                return len(after) - max(fits)
        return len(text)

    def _breakers_at(self, token: int) -> Sequence[tuple[int, ...]]:
        return self._place.breakers.get(token, ())

    def top_n_sigma(self) -> None:
        """Tang et al. 2024: what is within n deviations of the largest logit."""
        some = [float(x) for x in self._x.values() if x > -math.inf]
        if self._s.top_n_sigma and len(self._x) > 1:
            mean = math.fsum(some) / len(some)
            deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in some) / len(some))
            least = max(some) - self._s.top_n_sigma * deviation
            self._x = {i: x if x >= least else -math.inf for i, x in self._x.items()}

    def top_k(self) -> None:
        """The k largest."""
        if self._s.top_k:
            self._keep(self._ranked()[: self._s.top_k])

    def typ_p(self) -> None:
        """Meister et al. 2023: those whose surprise is nearest to the entropy."""
        if self._s.typical_p == 1:
            return
        p = self._p()
        entropy = -math.fsum(q * math.log(q) for q in p.values() if q)
        off = {i: abs(-math.log(q) - entropy) if q else math.inf for i, q in p.items()}
        ranked = sorted(self._ranked(), key=lambda i: off[i])
        sums = itertools.accumulate(p[i] for i in ranked)
        self._keep(ranked[: 1 + sum(mass <= self._s.typical_p for mass in sums)])

    def top_p(self) -> None:
        """Holtzman et al. 2020, nucleus sampling."""
        if self._s.top_p < 1:
            p, ranked = self._p(), self._ranked()
            sums = itertools.accumulate(p[i] for i in ranked)
            self._keep(ranked[: 1 + sum(mass < self._s.top_p for mass in sums)])

    def min_p(self) -> None:
        """Nguyen et al. 2024, "Min-p"."""
        if self._s.min_p:
            top = max(self._x.values())
            self._keep([i for i, x in self._x.items() if math.exp(x - top) >= self._s.min_p])

    def xtc(self) -> None:
        """p-e-w 2024: by a coin, all that are likely but the least likely of them."""
        s, p = self._s, self._p()
        likely = [i for i in self._ranked() if p[i] >= s.xtc_threshold and p[i]]
        tossed = s.xtc_probability and s.xtc_threshold <= 0.5
        if tossed and self._place.coin <= s.xtc_probability and len(likely) > 1:
            self._keep([i for i in self._x if i not in likely[:-1]])

    def temperature(self) -> None:
        """Fixed, or moved by the entropy as a share of the largest possible."""
        s, t = self._s, self._s.temperature
        if s.dynatemp_range and not s.mirostat:
            if len(self._x) < 2:
                return
            some = [q for q in self._p().values() if q]
            share = max(0.0, -math.fsum(q * math.log(q) for q in some) / math.log(len(self._x)))
            low, high = max(0.0, t - s.dynatemp_range), t + s.dynatemp_range
            t = low + (high - low) * share**s.dynatemp_exponent
        if t == 0:
            best = self._ranked()[0]
            self._x = {i: x if i == best else -math.inf for i, x in self._x.items()}
        else:
            self._x = {i: float(x) / max(t, 1e-6) for i, x in self._x.items()}
            self._divided = True

    def _mirostat(self) -> None:
        """Basu et al. 2021: algorithm 1, whose k is Zipf's, or what has at most mu bits."""
        p, mu = self._p(), self._place.mu
        ranked = [i for i in self._ranked() if p[i]]
        if self._s.mirostat == 2:
            n = sum(-math.log2(p[i]) <= mu for i in ranked)
        else:
            n = self._zipf([p[i] for i in ranked[:100]], mu)
        self._keep(ranked[: max(1, n)])

    def _zipf(self, p: Sequence[float], mu: float) -> int:
        t = [math.log((i + 2) / (i + 1)) for i in range(len(p) - 1)]
        b = [math.log(p[i] / p[i + 1]) for i in range(len(p) - 1)]
        slope = math.fsum(map(float.__mul__, t, b)) / math.fsum(x * x for x in t) if t else 0.0
        if not slope:
            return 1
        try:
            share = (slope - 1) / (1 - self._n ** (1 - slope))
            return int(min(self._n, (share * 2.0**mu) ** (1 / slope)))
        except OverflowError:
            return self._n

    def _ranked(self) -> list[int]:
        return sorted(self._x, key=lambda i: (-self._x[i], i))

    def _keep(self, ids: Sequence[int]) -> None:
        kept = set(ids)
        self._x = {i: x for i, x in self._x.items() if i in kept}

    def _p(self) -> dict[int, float]:
        top = float(max(self._x.values()))
        weights = {i: math.exp(float(x) - top) for i, x in self._x.items()}
        whole = math.fsum(weights.values())
        return {i: w / whole for i, w in weights.items()}

    def _rounded(self, x: float) -> float:
        return x if self._divided else float(np.float32(x))


def infilled(p: Mapping[int, float], infill: Infill) -> dict[int, float]:
    """What llama.cpp's sampler infill leaves."""
    if len(p) == 1:
        return dict(p)
    ending = math.fsum(q for i, q in p.items() if i in infill.ends)
    if 3 * ending * len(p) > 1 - ending:
        return _shares({i: q for i, q in p.items() if i in infill.ends})
    merged = _merged(p, infill.pieces)
    kept = {i: q for i, q in merged.items() if q >= 0.2 or i in infill.ends}
    others = len(kept.keys() - infill.ends)
    if not others:
        return {infill.end: 1.0}
    kept = _shares(kept)
    return _shares({i: q for i, q in kept.items() if q >= 1 / (others + 1) or i in infill.ends})


def _merged(p: Mapping[int, float], pieces: Sequence[bytes]) -> dict[int, float]:
    """A token and one that it begins are one: the likelier of them."""
    found = dict(p)
    ranked = sorted(p, key=lambda i: (-p[i], i))
    for short, long in itertools.product(ranked, ranked):
        if short == long or short not in found or long not in found or not pieces[short]:
            continue
        if pieces[long].startswith(pieces[short]):
            less, more = sorted((short, long), key=lambda i: (found[i], i == short))
            found[more] += found.pop(less)
    return found


def _shares(p: Mapping[int, float]) -> dict[int, float]:
    whole = math.fsum(p.values())
    return {i: q / whole for i, q in p.items() if q}
