"""Plain decoding written down again, from the papers and llama.cpp's documentation alone: no line
is shared with `localspec.core.logits`, `localspec.core.noise`, the verifiers or the round.

Slow and plain: dictionaries of Python numbers. Bias and penalties are rounded to 32 bits, as
llama.cpp does. The noise is SplitMix64's finalizer (Steele, Lea, Flood 2014) with the constants of
Stafford's variant 13; docs/exactness.md says what it is a function of.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from localspec.core.sampling_params import Sampling

_WORD = 2**64
_WEYL = 0x9E3779B97F4A7C15
_SAMPLE = 1
"""Number of the stream that the target's own tokens are drawn with."""

Table = Callable[[Sequence[int]], Sequence[float]]
Rule = Callable[[Sequence[int]], AbstractSet[int]]
"""Tokens that may follow those of a reply; none where it is over."""


class NoTokenError(Exception):
    """Nothing can be drawn here."""


@dataclass(frozen=True)
class Plain:
    """One reply, token by token."""

    table: Table
    prompt: tuple[int, ...]
    settings: Sampling
    seed: int
    limit: int
    end: int | None
    capacity: int
    rule: Rule | None = None

    def reply(self) -> tuple[list[int], str]:
        """Its tokens, and why it ended: "stop", "length" or "error"."""
        said: list[int] = []
        while True:
            if len(self.prompt) + len(said) > self.capacity:
                return said, "error"
            try:
                token = self.choice(said)
            except NoTokenError:
                return said, "error"
            said.append(token)
            if token == self.end or (self.rule is not None and not self.rule(said)):
                return said, "stop"
            if len(said) == self.limit:
                return said, "length"

    def choice(self, said: Sequence[int]) -> int:
        """argmax(log p + Gumbel noise): Gumbel-max (Gumbel 1954; Maddison et al. 2014)."""
        p = self.chances(said)
        place = len(self.prompt) + len(said)
        if len(p) == 1:
            return next(iter(p))
        return max(sorted(p), key=lambda x: math.log(p[x]) + gumbel(self.seed, place, x))

    def chances(self, said: Sequence[int]) -> dict[int, float]:
        """p after all that the settings and the grammar do to it."""
        before = [*self.prompt, *said]
        allowed = None if self.rule is None else self.rule(said)
        return chances([*self.table(before)], before, self.settings, allowed)

    def logprob(self, said: Sequence[int], token: int) -> float:
        """log of the softmax of the logits as they are."""
        row = [float(x) for x in self.table([*self.prompt, *said])]
        top = max(row)
        return row[token] - top - math.log(sum(math.exp(x - top) for x in row))

    def joint(self, n: int) -> dict[tuple[int, ...], float]:
        """The probability of every beginning of n tokens that is possible, or of a whole reply."""
        found = {(): 1.0}
        for _ in range(n):
            longer: dict[tuple[int, ...], float] = {}
            for said, mass in found.items():
                over = said and self.rule is not None and not self.rule(said)
                after = {(): 1.0} if over else {(x,): p for x, p in self.chances(said).items()}
                longer |= {(*said, *more): mass * chance for more, chance in after.items()}
            found = longer
        return found


def chances(
    row: Sequence[float], before: Sequence[int], s: Sampling, allowed: AbstractSet[int] | None
) -> dict[int, float]:
    """From logits to probabilities: mask, bias, penalties, top-k, top-p, min-p, temperature.

    Raises:
        NoTokenError: nothing is left, or a logit is not a number.
    """
    x = {i: np.float32(v) for i, v in enumerate(row) if allowed is None or i in allowed}
    if any(math.isnan(v) for v in x.values()):
        raise NoTokenError
    for token, bias in s.logit_bias:
        if token in x:
            x[token] = np.float32(x[token] + np.float32(bias))
    for token, times in Counter(before[-s.penalty_last_n :]).items():  # Keskar et al. 2019, "CTRL"
        if token in x:
            r = np.float32(s.repeat_penalty)
            v = x[token] * r if x[token] <= 0 else x[token] / r
            x[token] = np.float32(v - (times * s.frequency_penalty + s.presence_penalty))
    ranked = sorted((i for i in x if x[i] > -math.inf), key=lambda i: (-x[i], i))
    if not ranked:
        raise NoTokenError
    if s.temperature == 0 or s.top_k == 1:
        return {ranked[0]: 1.0}
    if s.top_k:
        ranked = ranked[: s.top_k]
    top = float(x[ranked[0]])
    weights = {i: math.exp(float(x[i]) - top) for i in ranked}
    if s.top_p < 1:  # Holtzman et al. 2020, nucleus sampling
        sums = itertools.accumulate(weights[i] for i in ranked)
        enough = s.top_p * math.fsum(weights.values())
        ranked = ranked[: 1 + next(n for n, mass in enumerate(sums) if mass >= enough)]
    ranked = [i for i in ranked if weights[i] >= s.min_p]  # Nguyen et al. 2024, "Min-p"
    warm = {i: math.exp((float(x[i]) - top) / s.temperature) for i in ranked}
    whole = math.fsum(warm.values())
    return {i: w / whole for i, w in warm.items()}


def gumbel(seed: int, place: int, token: int) -> float:
    """-log(-log u) of the 52-bit uniform number of that token at that place."""
    key = _mixed(_mixed(seed + _SAMPLE * _WEYL) ^ (place + 1) * _WEYL % _WORD)
    word = _mixed(_mixed((token + 1) * _WEYL % _WORD ^ key) + _WEYL)
    return -math.log(-math.log(((word >> 12) + 0.5) / 2**52))


def _mixed(word: int) -> int:
    word %= _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % _WORD
    return word ^ word >> 31
