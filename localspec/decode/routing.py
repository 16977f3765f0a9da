"""From the policy's plans to drafts: which drafter is asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import ANY, DraftPlan
from localspec.core.target import Target
from localspec.core.values import Draft, no_draft
from localspec.decode.request import Request
from localspec.drafters.base import Drafter


def propose(
    drafter: Drafter, requests: Sequence[Request], plans: Sequence[DraftPlan], target: Target
) -> list[Draft]:
    """One draft for each request: the first one that is not empty, in the order of its plan.

    Steps of equal rank are carried out together, so that a drafter computes the drafts of several
    requests in the same passes.
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
                asks = [requests[i].ask(plans[i].steps[rank]) for i in chosen]
                for i, draft in zip(chosen, member.propose(asks), strict=True):
                    drafts[i] = draft
    return drafts


__all__ = ["propose"]
