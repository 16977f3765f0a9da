"""Policies that measure nothing before they plan: a fixed draft length, and no drafts."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import Speculation, SpeculationState
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
from localspec.policy import Policy
from localspec.policy.costs import Costs
from localspec.policy.reasons import NOT_ALLOWED, ON, QUIET, nothing_proposed


class FixedLength(Policy):
    """The draft length that the user asked for; one round in 32 is plain, to measure its cost."""

    _PLAIN_EVERY = 32

    def __init__(self, k: int, costs: Costs, breadth: int = 1, leaves: int = 1) -> None:
        """``breadth`` nodes at each depth and ``leaves``, for drafters that draft trees."""
        self._plan = DraftPlan((DraftStep(ANY, Budget(nodes=k * breadth, depth=k, leaves=leaves)),))
        self._costs = costs
        self._round = 0
        self._idle: dict[int, int] = {}
        self._allowed: dict[int, bool] = {}
        """Rounds since the last draft, and whether any drafter may draft, by sequence."""

    @property
    def costs(self) -> Costs:
        """The costs that its passes are recorded in."""
        return self._costs

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """The same plan for every request."""
        self._round += 1
        for state in states:
            if state.emitted == 0 and not state.other_policy:
                self._idle[state.seq] = 0
            self._allowed[state.seq] = state.drafters is None or bool(state.drafters)
        plan = PLAIN if self._round % self._PLAIN_EVERY == 0 else self._plan
        return [plan] * len(states)

    def speculation_of(self, seq: int) -> Speculation:
        """Parked where the drafters have had nothing to propose for a while."""
        if not self._allowed.get(seq, True):
            return NOT_ALLOWED
        idle = self._idle.get(seq, 0)
        return nothing_proposed(idle) if idle >= QUIET else ON

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Record the cost of the pass, unless all its requests have failed."""
        del evidence
        if not outcomes:
            return
        for o in outcomes:
            drafted = bool(o.proposed or o.forced)
            self._idle[o.seq] = 0 if drafted else self._idle.get(o.seq, 0) + 1
        seconds = max(o.round_s for o in outcomes) - sum(o.drafting_s for o in outcomes)
        self._costs.record_pass(sum(o.width for o in outcomes), seconds)


class Plain(Policy):
    """Never drafts."""

    def __init__(
        self, reason: str, brief: str | None = None, *, state: SpeculationState = "off"
    ) -> None:
        self._speculation = Speculation(state, reason, brief)

    def speculation_of(self, seq: int) -> Speculation:
        """The reason that it was given."""
        del seq
        return self._speculation

    def decide_reading(self, state: RequestState) -> bool:
        """Never."""
        del state
        return False

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """No drafting."""
        return [PLAIN] * len(states)
