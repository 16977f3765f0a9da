"""What the requests of a round agree on: one drafter drafts as far for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localspec.policy.beliefs import Beliefs, Reply
from localspec.policy.budgets import ReplyBudget
from localspec.policy.company import Agreed, Member, agree, let_one_draft
from localspec.policy.decide import TRIED, Belief


class Agreement:
    """Makes the decisions of `localspec.policy.company` for the running replies."""

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs

    def of(
        self,
        running: Sequence[Reply],
        beliefs: Sequence[Sequence[Belief]],
        neighbours: Sequence[ReplyBudget],
    ) -> list[list[Belief]]:
        """The beliefs of the running replies, with what all requests do together. ``neighbours``
        are the accounts of requests that another policy plans for: they wait.
        """
        waiting = [Member(None, account.bears, room=0) for account in neighbours]
        by_source: dict[str, Agreed] = {}
        for source in self._beliefs.sources:
            if source not in self._beliefs.copies:
                own = [next((b for b in those if b.source == source), None) for those in beliefs]
                agreed = self._agreed(running, own, waiting)
                if agreed is not None:
                    by_source[source] = agreed
        by_source = let_one_draft(by_source)
        return [[replace(b, agreed=by_source.get(b.source)) for b in those] for those in beliefs]

    @staticmethod
    def _agreed(
        running: Sequence[Reply],
        beliefs: Sequence[Belief | None],
        waiting: Sequence[Member],
    ) -> Agreed | None:
        """What all do with one drafter: they draft, or try it where a trial of its costs is due.
        None if none may use it.
        """
        known = [b for b in beliefs if b is not None and b.breadth]
        if not known:
            return None
        prices = known[0].prices  # of all: beside others, the breadth of trees is that of no text
        budget = sum(reply.budget.left_for_all for reply in running) / len(running)
        members = [*(r.member(b) for r, b in zip(running, beliefs, strict=True)), *waiting]
        agreed = agree(members, prices, budget)
        best = next((b.at_best for b in known if b.at_best is not None), None)
        if agreed.depth or best is None:
            return agreed
        trial = agree(members, best, budget)
        if not trial.depth:
            return agreed
        return replace(agreed, depth=min(TRIED, trial.depth), tried=True)
