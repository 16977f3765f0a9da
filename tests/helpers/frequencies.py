"""Frequency tests: what was said against the exact distribution, on tiny tables."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tables
from scipy import stats

from localspec.decode.verifiers import Verifier
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree import Trees

FALSE_ALARM = 1e-4
"""Probability that a correct program fails with other seeds; they are fixed, so results are too."""
TARGET = tables.random_table(11, v=3, sharpness=1.0)
DRAFT = tables.blend(TARGET, tables.random_table(12, v=3, sharpness=1.0), 0.7)
EXACT = tables.exact_joint(TARGET, 3)
LOOKS = ((0.25, 0.2), (0.5, 0.05))
"""Which share of the draws is looked at before all are drawn, and the p-value above which that is
enough: of correct programs, four in five are seen to be right with a quarter of the draws. An alarm
needs all of them, so its rate is the last look's.
"""
_FEWEST_EARLY = 5.0
CERTAIN = 1e-12
"""A p-value by which an early look is an alarm. It adds about 1e-7 to the rate, since chi-squared
describes counts as small as 5 badly there.
"""
_FEWEST = 20.0
"""Outcomes that are expected seldomer are counted together: chi-squared is an approximation, by
which one text of probability 1e-6 would be an alarm. So pooled, 1.0e-4 to 1.3e-4 of 400,000 correct
samples of these tables gave one.
"""


def p_value_of(
    said: Iterable[tuple[int, ...]], exact: Mapping[tuple[int, ...], float], fewest: float = _FEWEST
) -> float:
    """p-value of the hypothesis that ``said`` was drawn from ``exact`` (chi-squared); 0 where
    something impossible was said.
    """
    seen = collections.Counter(said)
    if not seen.keys() <= exact.keys():
        return 0.0
    runs = seen.total()
    both = sorted((p * runs, seen[outcome]) for outcome, p in exact.items())
    while len(both) > 1 and both[0][0] < fewest:
        both = sorted([(both[0][0] + both[1][0], both[0][1] + both[1][1]), *both[2:]])
    expected, observed = np.array(both).T
    assert len(both) > 1, "too few draws to tell anything"
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(chi2, len(both) - 1))


def looks(runs: int) -> Iterator[tuple[range, float, float]]:
    """The looks, each as the seeds that it adds, the p-value that is enough, and the fewest that
    may be expected of an outcome (`p_value_of`).
    """
    done = 0
    for share, enough in LOOKS:
        yield range(done, done := round(share * runs)), enough, _FEWEST_EARLY
    yield range(done, runs), 1.0, _FEWEST


def p_value_by_looks(
    say: Callable[[int], tuple[int, ...]], exact: Mapping[tuple[int, ...], float], runs: int
) -> float:
    """`p_value_of` what is said with each of so many seeds, or with as few of them as `LOOKS` need
    to see that nothing is wrong, or that something surely is.
    """
    said: list[tuple[int, ...]] = []
    for seeds, enough, fewest in looks(runs):
        said.extend(map(say, seeds))
        p = p_value_of(said, exact, fewest)
        if p > enough or p < CERTAIN:
            break
    return p


def p_value(
    drafter: Any,
    verifier: Verifier,
    runs: int,
    policy: object = None,
    *,
    looks_early: bool = True,
) -> float:
    """p-value of the hypothesis that the first three tokens follow the target's distribution. What
    goes on learning from run to run is asked all of them.
    """

    def said(seed: int) -> tuple[int, ...]:
        if isinstance(drafter, ChainDrafter | Trees):  # what it read was another request's
            drafter.close(0)
        return tuple(tables.decode(TARGET, drafter, verifier, seed, 3, policy=policy))

    if not looks_early:
        return p_value_of(map(said, range(runs)), EXACT)
    return p_value_by_looks(said, EXACT, runs)
