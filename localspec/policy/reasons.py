"""Why nothing is drafted: each reason in full with its figures, and brief for a line of figures."""

from __future__ import annotations

from localspec.core.events import Speculation
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.gain import Curve, most_gain

_CHECKING = "checking drafts costs too much here"

NOTHING_YET = Speculation("parked", "nothing to draft from yet", "nothing to draft from yet")
"""The text has no part yet that a drafter could continue."""
MEASURING = Speculation(
    "parked",
    "measuring the draft first: none of its guesses was checked yet",
    "measuring the draft first",
)
"""A drafter that computes has not been compared with the target yet."""
BREADTH_COSTS = Speculation(
    "parked", f"{_CHECKING}: several guesses must be checked at once", _CHECKING
)
"""A drafter of trees, where breadth does not pay."""


def why_parked(
    acceptance: AcceptanceEstimate,
    curve: Curve,
    cost: float,
    margin: float,
    requests: int = 1,
    measured: Curve | None = None,
) -> Speculation:
    """Why a drafter that computes does not draft: what was measured, and how often.

    ``cost`` is that of a drafted token and ``margin`` the least gain, in plain passes and tokens;
    so many ``requests`` share each pass. ``measured`` is what passes cost, where ``curve`` also
    has what the other requests would lose.
    """
    together = f" with {requests} requests at once" if requests > 1 else ""
    if most_gain(curve, cost) <= margin:
        passes = curve if measured is None else measured
        width = min(4, len(passes))
        return Speculation(
            "parked",
            f"{_CHECKING}{together}: checking {width} tokens{' each' * (requests > 1)} takes "
            f"{passes[width - 1]:.1f} times as long as one, and drafting one takes {cost:.0%} of "
            "that time",
            _CHECKING,
        )
    judged = round(acceptance.evidence)
    if judged < 1:
        return MEASURING
    share = acceptance.accepted.sum() / acceptance.evidence
    return Speculation(
        "parked",
        f"plain decoding is faster here{together}: {share:.0%} of {judged} checked guesses were "
        "right, which gains less than guessing costs",
        f"drafts gain too little ({share:.0%} right)",
    )


def not_read(unread: int) -> Speculation:
    """Why a drafter that may pay does not draft: it has not read the text."""
    return Speculation(
        "parked",
        f"reading the {unread} tokens that the draft has not read would take longer than it is "
        "expected to save in this reply",
        "the draft has not read this text",
    )


def nothing_likely(right: int, judged: int) -> Speculation:
    """Why a drafter that copies from the text drafts nothing: how its guesses did in this reply."""
    if not judged:
        return NOTHING_YET
    return Speculation(
        "parked",
        f"no match in the text is likely enough now: {right} of {judged} guesses were right in "
        "this reply",
        "no similar passage in the text so far",
    )


def not_affordable(curve: Curve, cost: float, allowed: float) -> Speculation:
    """Why a drafter that is expected to pay does not draft yet: the reply may end at any token."""
    least = min(float(curve[k]) - 1 + k * cost for k in range(1, len(curve)))
    return Speculation(
        "parked",
        f"too early in this reply: a rejected draft costs the time of {least:.1f} tokens, "
        f"and no more than {max(0.0, allowed):.1f} may be lost yet",
        "not worth the risk yet",
    )


__all__ = [
    "BREADTH_COSTS",
    "MEASURING",
    "NOTHING_YET",
    "not_affordable",
    "not_read",
    "nothing_likely",
    "why_parked",
]
