"""Rejection sampling on tables: the first tokens of many replies are distributed as plain ones."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import tables
from scipy import stats

from faults.on_tables import KINDS, drafter_of
from faults.runner import Search
from faults.settings import Chance, sampling, simpler
from localspec.core.logits import Sampling
from localspec.core.values import Proposal
from localspec.decode.verifiers import Rejection
from localspec.drafters.cascade import Cascade

_FALSE_ALARMS = 1e-4
"""Probability that any of all cases ever run is called a fault though nothing is wrong."""
_DRAWS = 1500
_AGAIN = 6
"""Times as many draws where the first look is doubtful."""
_DOUBTFUL = 0.01
_TOKENS = 2


@dataclass(frozen=True)
class Case:
    """One table, one set of drafters, many seeds of noise."""

    seed: int
    v: int
    sharpness: float
    likeness: float
    drafters: tuple[str, ...]
    sampling: Sampling
    nodes: int
    leaves: int


class Chances(Search):
    """Chi-square against the exact distribution of the target."""

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        v = rng.choice([3, 5, 7])
        warm = sampling(rng, range(v))
        return Case(
            seed,
            v,
            rng.choice([0.5, 1.5]),
            rng.choice([0.0, 0.3, 1.0]),
            tuple(rng.sample(KINDS, rng.choice([1, 1, 2]))),
            replace(warm, temperature=warm.temperature or 1.0),
            rng.choice([1, 3, 8]),
            rng.choice([1, 2, 4]),
        )

    def wrong(self, case: Case) -> str | None:
        """See `faults.runner.Search`. What is doubtful is drawn again, from other noise; the bound
        falls with the seed, so that the sum over all seeds is bounded.
        """
        if _p_value(case, _DRAWS, 0) >= _DOUBTFUL:
            return None
        p = _p_value(case, _AGAIN * _DRAWS, 1)
        bound = _FALSE_ALARMS / _DOUBTFUL * 6 / (np.pi * (1 + case.seed)) ** 2
        return f"p = {p:.2g} of {_AGAIN * _DRAWS} draws" if p < bound else None

    def smaller(self, case: Case) -> Iterator[Case]:
        if len(case.drafters) > 1:
            for kind in case.drafters:
                yield replace(case, drafters=(kind,))
        for s in simpler(case.sampling):
            if s.temperature:
                yield replace(case, sampling=s)
        if case.nodes > 1:
            yield replace(case, nodes=case.nodes // 2)
        if case.leaves > 1:
            yield replace(case, leaves=case.leaves // 2)


def _p_value(case: Case, draws: int, stream: int) -> float:
    """The p-value of the first tokens of many replies; 0 where one of them is impossible."""
    table = tables.random_table(case.seed, case.v, case.sharpness)
    draft = tables.blend(
        table, tables.random_table(case.seed + 1, case.v, case.sharpness), case.likeness
    )
    seen: collections.Counter[tuple[int, ...]] = collections.Counter()
    for i in range(draws):
        kinds = [drafter_of(kind, draft, Proposal.SAMPLED) for kind in case.drafters]
        seed = (2 * i + stream) * 1_000_003 + case.seed
        policy = Chance(seed, case.nodes, case.leaves)
        found = tables.decode(
            table,
            Cascade(kinds),
            Rejection(),
            seed,
            _TOKENS,
            sampling=case.sampling,
            policy=policy,
        )
        seen[tuple(found)] += 1
    joint = tables.exact_joint(table, _TOKENS, case.sampling)
    if any(joint.get(outcome, 0.0) == 0.0 for outcome in seen):
        return 0.0
    expected = np.array([p * draws for p in joint.values() if p > 0])
    counted = np.array([seen[outcome] for outcome, p in joint.items() if p > 0], float)
    rare = expected < 5
    if rare.any():  # what is expected seldom is counted together
        expected = np.append(expected[~rare], expected[rare].sum())
        counted = np.append(counted[~rare], counted[rare].sum())
    if len(expected) < 2:
        return 1.0
    statistic = float(((counted - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1))
