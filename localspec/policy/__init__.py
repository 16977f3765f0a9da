"""Policies: which drafter may draft how much in the next round.

`localspec.policy.controller` decides by measured costs and acceptance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from localspec.core.events import Speculation
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.policy.costs import Costs
from localspec.policy.reasons import ON


class Policy(Protocol):
    """Plans before a round and learns from it afterwards. What else it may say has a default: that
    it drafts from the first round on, whatever that takes.
    """

    @property
    def costs(self) -> Costs | None:
        """The seconds of passes on this machine now; None where nothing is measured."""
        return None

    @abstractmethod
    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request of the next round; not used where it has its own policy."""

    def decide_reading(self, state: RequestState) -> bool:
        """Decide whether drafters read what they have not read now, or when they are asked."""
        del state
        return True

    def speculation_of(self, seq: int) -> Speculation:
        """On, parked or off, and why, for the request in a sequence, as of its last round."""
        del seq
        return ON

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Take the outcomes of a round, and what drafters have shown on the policy's requests."""
        del outcomes, evidence
