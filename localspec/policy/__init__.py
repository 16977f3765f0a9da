"""Policies: which drafter may draft how much in the next round.

`localspec.policy.controller` decides by measured costs and acceptance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.core.events import Speculation
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
from localspec.policy.costs import Costs


class Policy(Protocol):
    """Plans before a round and learns from it afterwards."""

    @property
    def speculation(self) -> Speculation:
        """On, parked or off, and why, as of the last plan."""
        ...

    @property
    def costs(self) -> Costs | None:
        """The seconds of passes on this machine now; None where nothing is measured."""
        ...

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request of the next round; those of foreign ones are not used."""
        ...

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether drafters should read the prompt now, because the first rounds will need it.

        Otherwise they catch up when they are asked, and the first token comes sooner.
        """
        ...

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Take the outcomes of a round, foreign requests included, and the evidence of all drafters
        on the others.
        """
        ...


class FixedLength:
    """The draft length that the user asked for; one round in 32 is plain, to measure its cost."""

    _PLAIN_EVERY = 32

    def __init__(self, k: int, costs: Costs, breadth: int = 1, leaves: int = 1) -> None:
        """``breadth`` nodes at each depth and ``leaves``, for drafters that draft trees."""
        self._plan = DraftPlan((DraftStep(ANY, Budget(nodes=k * breadth, depth=k, leaves=leaves)),))
        self.costs = costs
        self._round = 0
        self.speculation = Speculation("on")

    def expects_drafts(self, state: RequestState) -> bool:
        """Always: it drafts from the first round on."""
        del state
        return True

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """The same plan for every request."""
        self._round += 1
        plan = PLAIN if self._round % self._PLAIN_EVERY == 0 else self._plan
        return [plan] * len(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Record the cost of the pass, unless all its requests have failed."""
        del evidence
        if not outcomes:
            return
        seconds = max(o.round_s for o in outcomes) - sum(o.apart_s for o in outcomes)
        self.costs.passed(sum(o.width for o in outcomes), seconds)


class Plain:
    """Never drafts."""

    costs: Costs | None = None

    def __init__(self, reason: str) -> None:
        self.speculation = Speculation("off", reason)

    def expects_drafts(self, state: RequestState) -> bool:
        """Never."""
        del state
        return False

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """No drafting."""
        return [PLAIN] * len(states)

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Nothing to learn."""


__all__ = ["FixedLength", "Plain", "Policy"]
