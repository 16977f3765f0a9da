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


def p_value_of(said: Iterable[tuple[int, ...]], exact: Mapping[tuple[int, ...], float]) -> float:
    """p-value of the hypothesis that ``said`` was drawn from ``exact`` (chi-squared)."""
    seen = collections.Counter(said)
    expected = np.array(list(exact.values())) * seen.total()
    observed = np.array([seen[outcome] for outcome in exact])
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(chi2, len(exact) - 1))


def p_value(drafter: Any, verifier: Verifier, runs: int, policy: object = None) -> float:
    """p-value of the hypothesis that the first three tokens follow the target's distribution."""

    def said(seed: int) -> tuple[int, ...]:
        if isinstance(drafter, ChainDrafter | Trees):  # what it read was another request's
            drafter.close(0)
        return tuple(tables.decode(TARGET, drafter, verifier, seed, 3, policy=policy))

    return p_value_of(map(said, range(runs)), EXACT)
