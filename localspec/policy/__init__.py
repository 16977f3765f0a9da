"""Policies: how much to draft now. The measured controller lives in `localspec.policy.auto`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.events import Speculation
from localspec.values import Budget, Outcome


class Policy(Protocol):
    """Plans budgets before a round and learns from it afterwards."""

    @property
    def speculation(self) -> Speculation:
        """On, parked or off, and why, as of the last plan."""
        ...

    def plan(self, seqs: Sequence[int]) -> list[Budget]:
        """One budget a sequence for the next round."""
        ...

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """What came of the round."""
        ...


class Fixed:
    """The same chain length every round."""

    def __init__(self, k: int) -> None:
        self._budget = Budget.chain(k)
        self.speculation = Speculation("on")

    def plan(self, seqs: Sequence[int]) -> list[Budget]:
        """K for everyone."""
        return [self._budget] * len(seqs)

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""


class Plain:
    """Never drafts."""

    def __init__(self, reason: str) -> None:
        self.speculation = Speculation("off", reason)

    def plan(self, seqs: Sequence[int]) -> list[Budget]:
        """Zero for everyone."""
        return [Budget(0, 0, 0)] * len(seqs)

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""


__all__ = ["Fixed", "Plain", "Policy"]
