"""Rejection sampling in a batch: the first tokens of requests that share their passes, under
grammars, biases and penalties, are distributed as the papers say they must be.

The chance that any case that is ever run is called a fault though nothing is wrong is at most
`_FALSE_ALARMS`: a case of m requests makes m tests. It is doubtful where one of them has p <
`_DOUBTFUL / m`, and those are then drawn again, from other noise and more often, against a bound
that falls with the seed: summed over all tests of all seeds (Bonferroni), it is that.
"""

from __future__ import annotations

import collections
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tables
from scipy import stats

from faults.guests import LOOKUPS, USUAL, Shaped, Wish, breaker
from faults.runner import Search
from faults.settings import Chance, further, sampling
from localspec.core.values import Proposal
from localspec.decode.round import decode_round
from localspec.drafters.base import Drafter
from localspec.drafters.cascade import Cascade
from localspec.drafters.model.chain import ChainDrafter
from localspec.testing import Table, TableModel, TableTarget

KINDS = (
    "chain",
    "tree",
    *LOOKUPS,
    *(s for s, (_, kind) in tables.SHAPES.items() if kind is not Proposal.COUPLED),
)
_FALSE_ALARMS = 1e-4
_DRAWS = 700
_AGAIN = 8
"""Times as many draws where the first look is doubtful."""
_DOUBTFUL = 0.01
_TOKENS = 2
"""First tokens that are compared, of a reply that has one more: a draft may then be two deep, and
its first token must not depend on what could follow it."""
_EXPECTED = 8.0
"""Outcomes that are expected less often are counted together."""


@dataclass(frozen=True)
class Case:
    """One table, one set of drafters, some requests, many seeds of noise."""

    seed: int
    v: int
    sharpness: float
    likeness: float
    drafters: tuple[str, ...]
    nodes: int
    leaves: int
    wishes: tuple[Wish, ...]
    lacks: int | None = None
    """A token that the drafters cannot propose, though a grammar may allow nothing else."""


class BatchChances(Search):
    """Chi-square of every request against its exact distribution."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._looks: list[float] = []

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        v = rng.choice([3, 4, 6])
        return Case(
            seed,
            v,
            rng.choice([0.5, 1.5]),
            rng.choice([0.3, 1.0]),
            tuple(rng.sample(KINDS, rng.choice([1, 1, 2]))),
            rng.choice([1, 3, 8]),
            rng.choice([1, 2, 4]),
            tuple(_wish(rng, v, 1000 * seed + i) for i in range(rng.choice([2, 3, 4]))),
            rng.choice([None, rng.randrange(v)]),
        )

    def wrong(self, case: Case) -> str | None:
        found = p_values(case, _DRAWS, 0)
        self._looks += found
        doubtful = [i for i, p in enumerate(found) if p < _DOUBTFUL / len(found)]
        if not doubtful:
            return None
        again = p_values(case, _AGAIN * _DRAWS, 1)
        bound = _FALSE_ALARMS / _DOUBTFUL * 6 / (math.pi * (1 + case.seed)) ** 2
        wrong = {i: again[i] for i in doubtful if again[i] < bound}
        return f"p = {wrong} of {_AGAIN * _DRAWS} draws" if wrong else None

    def smaller(self, case: Case) -> Iterator[Case]:
        for i in range(len(case.wishes)):
            if len(case.wishes) > 1:
                yield replace(case, wishes=(*case.wishes[:i], *case.wishes[i + 1 :]))
        for kind in case.drafters if len(case.drafters) > 1 else ():
            yield replace(case, drafters=(kind,))
        if case.nodes > 1:
            yield replace(case, nodes=case.nodes // 2)
        if case.lacks is not None:
            yield replace(case, lacks=None)

    def figures(self) -> Iterator[str]:
        known = [p for p in self._looks if p < 1.0]  # of more than one outcome
        if known:
            least, n = min(known), len(known)
            fisher = stats.combine_pvalues(np.maximum(known, 1e-300), "fisher").pvalue
            below = sum(p < 0.5 for p in known)
            yield (
                f"{n} tests of {_DRAWS} replies each, smallest p {least:.2g} (Bonferroni "
                f"{min(1.0, n * least):.2g}), Fisher {fisher:.2g}, {below} below 0.5"
            )


def _wish(rng: random.Random, v: int, seed: int) -> Wish:
    warm = sampling(rng, range(v))
    warm = further(rng, warm) if rng.random() < 0.3 else warm
    kept = tuple((i, b) for i, b in warm.logit_bias if b > -math.inf)  # none may forbid all
    warm = replace(warm, temperature=warm.temperature or 1.0, logit_bias=kept)
    return Wish(
        prompt=tuple(rng.randrange(v) for _ in range(rng.randint(2, 6))),
        seed=seed,
        sampling=replace(warm, top_k=0 if warm.top_k == 1 else warm.top_k),
        verifier=rng.choice(["rejection", "rejection", "rejection", "match"]),
        limit=_TOKENS + 1,
        ends=frozenset(),
        rule=rng.choice([None, seed]),
        defect=None,
        at=0,
        rounds=None,
        own=rng.random() < 0.3,
        extras=replace(USUAL, breakers={rng.randrange(v): breaker(rng, v)}),
    )


def p_values(case: Case, draws: int, stream: int) -> list[float]:
    """The p-value of the first tokens of each request; 0 where one of them is impossible."""
    table = tables.random_table(case.seed, case.v, case.sharpness)
    other = tables.random_table(case.seed + 1, case.v, case.sharpness)
    draft = tables.blend(table, other, case.likeness)
    if case.lacks is not None:
        draft = tables.without(draft, case.lacks)
    drafter = Cascade([_drafter(kind, draft) for kind in case.drafters])
    seen = [collections.Counter[tuple[int, ...]]() for _ in case.wishes]
    for i in range(draws):
        first = ((2 * i + stream) * 1_000_003 + case.seed) * 16
        wishes = [replace(one, seed=first + n) for n, one in enumerate(case.wishes)]
        for n, said in enumerate(_replies(case, table, drafter, wishes)):
            seen[n][said] += 1
    exact = [one.plain(table, case.v, 1 << 20).joint(_TOKENS) for one in case.wishes]
    return [_p_value(counts, p, draws) for counts, p in zip(seen, exact, strict=True)]


def _drafter(kind: str, table: Table) -> Drafter:
    if kind == "chain":
        return ChainDrafter(TableModel(table), Proposal.SAMPLED)
    if kind == "tree":
        return tables.branching(table, Proposal.SAMPLED)
    return LOOKUPS[kind]() if kind in LOOKUPS else Shaped(kind, table)


def _replies(
    case: Case, table: Table, drafter: Drafter, wishes: Sequence[Wish]
) -> list[tuple[int, ...]]:
    """The replies of one draw, of which the last one joins a round later."""
    target, shared = TableTarget(table), Chance(wishes[0].seed, case.nodes, case.leaves)
    requests = []
    for seq, one in enumerate(wishes):
        policy = Chance(one.seed, case.nodes, case.leaves) if one.own else None
        requests.append(one.request(seq, case.v, policy))
        target.read(seq, one.prompt[:-1])
        drafter.close(seq)
    late, running = requests[-1:], requests[:-1]
    while running or late:
        if running:
            decode_round(running, target, drafter, shared)
        running, late = [r for r in (*running, *late) if r.running], []
    for r in requests:
        if r.error is not None:
            raise r.error
    return [tuple(item.token for item in r.emitted[:_TOKENS]) for r in requests]


def _p_value(
    seen: Mapping[tuple[int, ...], int], joint: Mapping[tuple[int, ...], float], draws: int
) -> float:
    if any(said not in joint for said in seen):
        return 0.0
    expected = np.array([p * draws for p in joint.values()])
    counted = np.array([seen.get(said, 0) for said in joint], float)
    rare = expected < _EXPECTED
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        counted = np.append(counted[~rare], counted[rare].sum())
    if len(expected) > 1 and expected[-1] < _EXPECTED:  # they are few even together
        expected = np.append(expected[:-2], expected[-2:].sum())
        counted = np.append(counted[:-2], counted[-2:].sum())
    if len(expected) < 2:
        return 1.0
    statistic = float(((counted - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1))
