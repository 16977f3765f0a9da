"""How broad the trees of drafters that draft trees are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.core.branching import Branching
from localspec.core.plan import Budget
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.gain import Curve


@dataclass(frozen=True, slots=True)
class TreesTuning:
    """Constants of `Trees`."""

    breadths: tuple[int, ...] = (2, 3, 4)
    """Nodes at each depth that are considered."""
    shallow: int = 4
    """Depth at which the cost of breadth is compared."""
    free: float = 1.2
    """Factor by which breadth may lengthen a pass of a drafter that drafts trees only."""


class Trees:
    """Chooses breadths, and the budgets that follow."""

    def __init__(self, branching: Mapping[str, Branching], tuning: TreesTuning) -> None:
        self._branching = dict(branching)
        self._tuning = tuning

    def least(self, source: str) -> int:
        """Nodes at each depth that a drafter needs."""
        return self._branching.get(source, Branching()).least

    def breadth(self, source: str, text: AcceptanceEstimate, curve: Curve) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring."""
        branching = self._branching.get(source)
        if branching is None:
            return 1
        tuning, deepest = self._tuning, len(curve) - 1
        longer = tuning.free
        if branching.least == 1:
            mean = text.mean(text.table())
            longer = self._emitted(1 - branching.misses * (1 - mean)) / self._emitted(mean)
        limit = longer * curve[min(tuning.shallow, deepest)]
        paying = [b for b in tuning.breadths if curve[min(b * tuning.shallow, deepest)] <= limit]
        return max(paying, default=1)

    def _emitted(self, acceptance: float) -> float:
        """Expected tokens of a round with a draft of usual depth."""
        return sum(acceptance**i for i in range(self._tuning.shallow + 1))

    def budget(self, source: str, breadth: int, depth: int) -> Budget:
        """The budget of a draft of that depth."""
        if breadth == 1:
            return Budget.chain(depth)
        return Budget(breadth * depth, depth, breadth * self._branching[source].leaves)


__all__ = ["Trees", "TreesTuning"]
