"""Plain decoding written down again, from the papers and llama.cpp's documentation alone: no line
is shared with `localspec.core.logits`, `localspec.core.noise`, the verifiers or the round. What
samplers do with a row is in `faults.samplers_by_the_papers`.

Slow and plain: Python numbers. The noise is SplitMix64's finalizer (Steele, Lea, Flood 2014) with
the constants of Stafford's variant 13; docs/exactness.md says what it is a function of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from faults.samplers_by_the_papers import Infill, Place, Samplers, infilled
from faults.texts_by_hand import Texts
from localspec.core.sampling_params import Sampling

_WORD = 2**64
_WEYL = 0x9E3779B97F4A7C15
_SAMPLE, _COIN = 1, 5
"""Numbers of the streams that the target's own tokens and XTC's coins are drawn with."""

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
    ends: AbstractSet[int]
    capacity: int
    rule: Rule | None = None
    texts: Texts | None = None
    breakers: Mapping[int, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    infill: Infill | None = None
    _known: dict[tuple[int, ...], dict[int, float]] = field(default_factory=dict, init=False)
    """Chances by the tokens before: Mirostat's depend on all those before them."""

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
            if token in self.ends:
                return said, "stop"
            why = None if self.texts is None else self.texts.shown(said, over=False)[1]
            if why is None and self.rule is not None and not self.rule(said):
                why = "stop"
            if why is None and len(said) == self.limit:
                why = "length"
            if why is not None:
                return said, why

    def text(self, said: Sequence[int], *, over: bool) -> str:
        """What is shown of a reply; ``over``: whether it ended by itself."""
        assert self.texts is not None
        return self.texts.shown([t for t in said if t not in self.ends], over=over)[0]

    def choice(self, said: Sequence[int]) -> int:
        """argmax(log p + Gumbel noise): Gumbel-max (Gumbel 1954; Maddison et al. 2014)."""
        p = self.chances(said)
        place = len(self.prompt) + len(said)
        if len(p) == 1:
            return next(iter(p))
        return max(sorted(p), key=lambda x: math.log(p[x]) + gumbel(self.seed, place, x))

    def chances(self, said: Sequence[int]) -> dict[int, float]:
        """p after all that the settings and the grammar do to it.

        Raises:
            NoTokenError: nothing is left, or a logit is not a number.
        """
        key = tuple(said)
        if key not in self._known:
            place = len(self.prompt) + len(key)
            self._known[key] = self._chances(key, coin(self.seed, place))
        return self._known[key]

    def _whatever_the_coin(self, said: tuple[int, ...]) -> dict[int, float]:
        """The chances under any seed: XTC's coin has both of its sides."""
        share = self.settings.xtc_probability
        if not share:
            return self.chances(said)
        sides = (share, self._chances(said, 0.0)), (1 - share, self._chances(said, 1.0))
        ids = {i for _, p in sides for i in p}
        return {i: math.fsum(weight * p.get(i, 0.0) for weight, p in sides) for i in ids}

    def _chances(self, said: tuple[int, ...], number: float) -> dict[int, float]:
        before = [*self.prompt, *said]
        row, allowed = self.table(before), None if self.rule is None else self.rule(said)
        x = {i: float(v) for i, v in enumerate(row) if allowed is None or i in allowed}
        if any(math.isnan(v) for v in x.values()):
            raise NoTokenError
        for token, bias in self.settings.logit_bias:
            if token in x:
                x[token] = float(np.float32(x[token] + bias))
        if max(x.values(), default=-math.inf) == -math.inf:
            raise NoTokenError
        place = Place(before, number, self._mu(said), self.breakers)
        p = Samplers(x, self.settings, place, len(row)).chances()
        return p if self.infill is None else infilled(p, self.infill)

    def _mu(self, said: tuple[int, ...]) -> float:
        """Basu et al. 2021: what was said moves the bits that Mirostat allows."""
        s = self.settings
        mu = 2 * s.mirostat_tau
        for n, token in enumerate(said if s.mirostat else ()):
            mu -= s.mirostat_eta * (-math.log2(self.chances(said[:n])[token]) - s.mirostat_tau)
        return mu

    def logprobs(self, said: Sequence[int], mode: str) -> dict[int, float]:
        """log of the softmax of the logits as they are ("raw"), or of the chances."""
        if mode == "processed":
            return {i: math.log(p) for i, p in self.chances(said).items()}
        row = [float(x) for x in self.table([*self.prompt, *said])]
        top = max(row)
        whole = top + math.log(math.fsum(math.exp(x - top) for x in row))
        return {i: x - whole for i, x in enumerate(row)}

    def joint(self, n: int) -> dict[tuple[int, ...], float]:
        """The probability of every beginning of n tokens that is possible, or of a whole reply."""
        found = {(): 1.0}
        for _ in range(n):
            longer: dict[tuple[int, ...], float] = {}
            for said, mass in found.items():
                over = said and self.rule is not None and not self.rule(said)
                p = {} if over else self._whatever_the_coin(said)
                after = {(): 1.0} if over else {(x,): chance for x, chance in p.items()}
                longer |= {(*said, *more): mass * chance for more, chance in after.items()}
            found = longer
        return found


def gumbel(seed: int, place: int, token: int) -> float:
    """-log(-log u) of the 52-bit uniform number of that token at that place."""
    key = _key(seed, place, _SAMPLE)
    return -math.log(-math.log(_uniform(_mixed((token + 1) * _WEYL % _WORD ^ key))))


def coin(seed: int, place: int) -> float:
    """XTC's number at that place."""
    return _uniform(_key(seed, place, _COIN))


def _key(seed: int, place: int, stream: int) -> int:
    return _mixed(_mixed(seed + stream * _WEYL) ^ (place + 1) * _WEYL % _WORD)


def _uniform(word: int) -> float:
    return ((_mixed(word + _WEYL) >> 12) + 0.5) / 2**52


def _mixed(word: int) -> int:
    word %= _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % _WORD
    return word ^ word >> 31
