"""From the policy's plans to drafts: which drafter is asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import ANY, NOTHING, DraftPlan, DraftStep
from localspec.core.target import Target
from localspec.core.values import Draft, no_draft
from localspec.decode.guiding import guided
from localspec.decode.request import Request
from localspec.drafters.base import Drafter

_NO_STEP = DraftStep(ANY, NOTHING)


def propose(
    drafter: Drafter, requests: Sequence[Request], plans: Sequence[DraftPlan], target: Target
) -> list[Draft]:
    """One draft for each request: the first one that is not empty, in the order of its plan.

    Steps of equal rank are carried out together, so that a drafter computes the drafts of several
    requests in the same passes. Under a grammar, a draft goes on through what the grammar forces,
    also an empty one.
    """
    plans = [r.limited(plan, target) for r, plan in zip(requests, plans, strict=True)]
    drafts = [no_draft(drafter.name) for _ in requests]
    for rank in range(max(len(plan.steps) for plan in plans)):
        for member in drafter.members:
            chosen = [
                i
                for i, plan in enumerate(plans)
                if not len(drafts[i])
                and rank < len(plan.steps)
                and plan.steps[rank].source in {member.name, ANY}
            ]
            if chosen:
                asks = [requests[i].ask(plans[i].steps[rank], target) for i in chosen]
                for i, draft in zip(chosen, member.propose(asks), strict=True):
                    drafts[i] = draft
    for i, r in enumerate(requests):
        if r.guided and r.processor.constraint is not None:
            drafts[i] = guided(drafts[i], r.ask(_NO_STEP, target))
    return drafts


__all__ = ["propose"]
