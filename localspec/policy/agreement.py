"""What the requests of a round agree on: one drafter drafts as far for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localspec.core.plan import Outcome, RequestState
from localspec.policy.beliefs import Beliefs, Reply
from localspec.policy.budgets import ReplyBudget
from localspec.policy.company import Member, Together, one_of, together
from localspec.policy.decide import TRIED, Belief


class Agreement:
    """Makes the decisions of `localspec.policy.company` for the running replies."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        self._others: dict[int, tuple[int, ReplyBudget]] = {}
        """Requests that another policy plans for, by sequence: tokens that each has emitted, and
        the account of what our drafts cost it.
        """

    def of(
        self,
        running: Sequence[Reply],
        beliefs: Sequence[Sequence[Belief]],
        states: Sequence[RequestState],
    ) -> list[list[Belief]]:
        """The beliefs of the running replies, with what all requests do together. ``states`` are
        those of all requests of the round.
        """
        waiting = [self._waits(state) for state in states if state.other_policy]
        found: dict[str, Together] = {}
        for source in self._beliefs.sources:
            own = [next((b for b in those if b.source == source), None) for those in beliefs]
            agreed = None
            if source not in self._beliefs.copies:
                agreed = self._agreed(running, own, waiting)
            if agreed is not None:
                found[source] = agreed
        found = one_of(found)
        return [
            [replace(b, together=found[b.source]) if b.source in found else b for b in those]
            for those in beliefs
        ]

    def settle(self, outcome: Outcome, gain: float) -> None:
        """A request that another policy plans for has won so many tokens by our drafts, or lost."""
        if outcome.seq in self._others:
            emitted, account = self._others[outcome.seq]
            new = 1 + outcome.accepted + outcome.forced
            account.settle(new, gain)
            self._others[outcome.seq] = emitted + new, account

    def _waits(self, state: RequestState) -> Member:
        emitted, account = self._others.get(state.seq, (-1, ReplyBudget()))
        if emitted != state.emitted:  # another request has the sequence
            account = ReplyBudget()
            self._others[state.seq] = state.emitted, account
        return Member(None, account.bears)

    def _agreed(
        self,
        running: Sequence[Reply],
        beliefs: Sequence[Belief | None],
        waiting: Sequence[Member],
    ) -> Together | None:
        """What all do with one drafter: they draft, or try it where a trial of its costs is due."""
        known = [b for b in beliefs if b is not None and b.breadth]
        if not known:
            return None
        budget = sum(reply.budget.left for reply in running) / len(running)
        members = [*(r.member(b) for r, b in zip(running, beliefs, strict=True)), *waiting]
        agreed = together(members, known[0].prices, budget)
        best = next((b.at_best for b in known if b.at_best is not None), None)
        if agreed is None or agreed.depth or best is None:
            return agreed
        trial = together(members, best, budget)
        if trial is None or not trial.depth:
            return agreed
        return replace(agreed, depth=min(TRIED, trial.depth), tried=True)
