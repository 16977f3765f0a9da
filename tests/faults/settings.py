"""Random sampling parameters and draft budgets, common to the searches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from localspec.core import sampler_settings
from localspec.core.events import Speculation
from localspec.core.logits import Sampling
from localspec.core.plan import (
    ANY,
    PLAIN,
    Budget,
    DraftPlan,
    DraftStep,
    Evidence,
    Outcome,
    RequestState,
)


def sampling(rng: random.Random, ids: Sequence[int]) -> Sampling:
    """Any sampling; biases are on some of ``ids``."""
    bias = ()
    if rng.random() < 0.3:
        some = rng.sample([*ids], min(len(ids) - 1, rng.randrange(1, 4)))
        bias = tuple((i, rng.choice([-math.inf, -2.0, 1.5, 4.0])) for i in some)
    penal = rng.random() < 0.3
    return Sampling(
        temperature=rng.choice([0.0, 0.3, 0.8, 1.0, 1.7]),
        top_k=rng.choice([0, 0, 1, 2, 5, 40]),
        top_p=rng.choice([1.0, 1.0, 0.95, 0.6]),
        min_p=rng.choice([0.0, 0.05, 0.3]),
        repeat_penalty=rng.choice([1.0, 1.3]) if penal else 1.0,
        frequency_penalty=rng.choice([0.0, 0.4]) if penal else 0.0,
        presence_penalty=rng.choice([0.0, 0.6]) if penal else 0.0,
        penalty_last_n=rng.choice([1, 5, 64]),
        logit_bias=bias,
    )


def further(rng: random.Random, usual: Sampling) -> Sampling:
    """The usual settings with one to three of llama.cpp's further samplers."""
    names = rng.sample(sampler_settings.ORDER, rng.randint(2, len(sampler_settings.ORDER)))
    names += rng.sample(names, rng.choice([0, 0, 1]))  # one of them twice
    some: tuple[dict[str, Any], ...] = (
        {
            "dry_multiplier": rng.choice([0.7, 3.0]),
            "dry_base": rng.choice([1.0, 1.75]),
            "dry_allowed_length": rng.choice([0, 1, 2]),
            "dry_penalty_last_n": rng.choice([3, 20, 64]),
        },
        {"xtc_probability": rng.choice([0.3, 1.0]), "xtc_threshold": rng.choice([0.05, 0.2])},
        {"typical_p": rng.choice([0.4, 0.9])},
        {"top_n_sigma": rng.choice([0.7, 1.5])},
        {
            "dynatemp_range": rng.choice([0.3, 2.0]),
            "dynatemp_exponent": rng.choice([0.0, 1.0, 2.0]),
        },
        {
            "mirostat": rng.choice([1, 2]),
            "mirostat_tau": rng.choice([0.5, 1.5, 5.0]),
            "mirostat_eta": rng.choice([0.1, 1.0]),
        },
        {"samplers": ",".join(names)},
    )
    for fields in rng.sample(some, rng.choice([1, 1, 2, 3])):
        usual = replace(usual, **fields)
    return usual


_USUAL = {spec.name: spec.default for spec in sampler_settings.FURTHER}


def simpler(s: Sampling) -> list[Sampling]:
    """The same with one thing less."""
    found = [
        replace(s, **_USUAL),
        *(replace(s, **{name: value}) for name, value in _USUAL.items()),
        replace(s, logit_bias=()),
        replace(s, repeat_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0),
        replace(s, top_k=0, top_p=1.0, min_p=0.0),
        replace(s, temperature=0.0),
    ]
    return [other for other in found if other != s]


class Chance:
    """A policy of random budgets: chains and trees, probes, and rounds without a draft."""

    costs = None

    def __init__(
        self, seed: int, nodes: int, leaves: int, before: Callable[[int], None] | None = None
    ) -> None:
        """``before`` is told the number of each round when it is planned."""
        self._rng = random.Random(seed)
        self._nodes, self._leaves = nodes, leaves
        self._before = before
        self._round = 0

    def speculation_of(self, seq: int) -> Speculation:
        """On."""
        return Speculation("on")

    def decide_reading(self, state: RequestState) -> bool:
        """Yes or no at random."""
        return self._rng.random() < 0.5

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One for everyone."""
        if self._before is not None:
            self._before(self._round)
        self._round += 1
        rng, kind = self._rng, self._rng.random()
        if kind < 0.1:
            return [PLAIN] * len(states)
        if kind < 0.2:
            return [DraftPlan((DraftStep(ANY, Budget(0, 0, 0), probe=True),))] * len(states)
        leaves = rng.randint(1, self._leaves)
        depth = rng.randint(1, min(self._nodes, rng.choice([3, 8, self._nodes])))
        nodes = depth if leaves == 1 else rng.randint(depth, self._nodes)
        return [DraftPlan((DraftStep(ANY, Budget(nodes, depth, leaves)),))] * len(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Nothing."""
