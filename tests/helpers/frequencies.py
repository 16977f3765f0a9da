"""Frequency tests: what was said against the exact distribution, on tiny tables."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
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
_FEWEST = 20.0
"""Outcomes that are expected seldomer are counted together: chi-squared is an approximation, by
which one text of probability 1e-6 would be an alarm. So pooled, 1.0e-4 to 1.3e-4 of 400,000 correct
samples of these tables gave one.
"""


def p_value_of(said: Iterable[tuple[int, ...]], exact: Mapping[tuple[int, ...], float]) -> float:
    """p-value of the hypothesis that ``said`` was drawn from ``exact`` (chi-squared); 0 where
    something impossible was said.
    """
    seen = collections.Counter(said)
    if not seen.keys() <= exact.keys():
        return 0.0
    runs = seen.total()
    both = sorted((p * runs, seen[outcome]) for outcome, p in exact.items())
    while len(both) > 1 and both[0][0] < _FEWEST:
        both = sorted([(both[0][0] + both[1][0], both[0][1] + both[1][1]), *both[2:]])
    expected, observed = np.array(both).T
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(chi2, len(both) - 1))


def p_value(drafter: Any, verifier: Verifier, runs: int, policy: object = None) -> float:
    """p-value of the hypothesis that the first three tokens follow the target's distribution."""

    def said(seed: int) -> tuple[int, ...]:
        if isinstance(drafter, ChainDrafter | Trees):  # what it read was another request's
            drafter.close(0)
        return tuple(tables.decode(TARGET, drafter, verifier, seed, 3, policy=policy))

    return p_value_of(map(said, range(runs)), EXACT)
