"""Why nothing is drafted: each reason in full with its figures, and brief for a line of figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localspec.core.events import Speculation
from localspec.policy.gain import Curve, Gain, Outlook, Prices, lengths_of, most_gain

_CHECKING = "checking drafts costs too much here"
_SLOW = "the draft is too slow here"
_DELAYS = "drafts would slow the replies beside it"
_RISK = "not worth the risk yet"
_ENOUGH = 8
"""Judged guesses of one reply from which on their share is shown for it."""

NOT_ALLOWED = Speculation("off", "switched off for this reply", "switched off for this reply")
"""No drafter may draft for the request."""
NOTHING_YET = Speculation(
    "parked",
    "nothing to draft from yet: no passage of the text has been found again",
    "nothing to draft from yet",
)
"""No drafter that copies has proposed anything in this reply."""
MEASURING = Speculation(
    "parked",
    "the draft model is not measured yet: none of its guesses was compared with the target",
    "the draft model is not measured yet",
)
"""A drafter that computes has not been compared with the target yet."""
NO_ROOM = Speculation(
    "parked",
    "a draft has no room: the pass, the context or the reply is full",
    "a draft has no room",
)
"""Drafters were asked for nothing, since not even one token may be drafted."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """How often a drafter was right: counts of tokens compared with those emitted."""

    right: int
    judged: int
    """In this reply."""
    right_lately: int = 0
    judged_lately: int = 0
    """The last ones in all replies, this one included."""

    def __str__(self) -> str:
        here = f"{self.right} of {self.judged} guesses were right in this reply"
        if self.judged_lately <= self.judged:
            return here
        lately = f"{self.right_lately} of the last {self.judged_lately}"
        if not self.judged:
            return f"{lately} guesses were right, in earlier replies"
        return f"{here}, {lately} with those of other replies"

    @property
    def share(self) -> str:
        """A percentage; of few guesses in this reply, that of the last ones in all replies."""
        if self.judged >= _ENOUGH or self.judged_lately <= self.judged:
            return f"{self.right / self.judged:.0%}"
        return f"{self.right_lately / self.judged_lately:.0%}"


@dataclass(frozen=True, slots=True)
class Passes:
    """What passes take, for ``requests`` at once."""

    curve: Curve
    """Measured time of a pass by draft length, in plain passes; a draft has ``breadth`` nodes for
    each token of its depth.
    """
    requests: int = 1
    breadth: int = 1

    @property
    def together(self) -> str:
        """How many requests run at once, in words; nothing for one."""
        return f" with {self.requests} requests at once" if self.requests > 1 else ""

    def checking(self, depth: int) -> str:
        """What checking a draft of that depth takes."""
        tokens, times = 1 + depth * self.breadth, self.curve[depth]
        if self.requests == 1:
            return f"checking {tokens} tokens takes {times:.1f} times as long as one"
        return f"checking {tokens} tokens each takes {times:.1f} times as long as one each"

    def drafting(self, cost: float) -> str:
        """What drafting a token takes, where ``cost`` is what all requests wait for it."""
        share, all_wait = cost / self.requests, ", and all wait for it" * (self.requests > 1)
        if share > 1:
            return f"drafting one takes {share:.1f} times as long as a plain one{all_wait}"
        return f"drafting one takes {share:.0%} of the time of a plain one{all_wait}"


def breadth_costs(curve: Curve, nodes: int) -> Speculation:
    """Why a drafter of trees does not draft: its narrowest trees, of so many ``nodes``, do not pay;
    ``curve`` has the cost of passes by nodes.
    """
    nodes = min(nodes, len(curve) - 1)
    return Speculation(
        "parked",
        f"{_CHECKING}: its trees have several guesses for each place, and "
        f"{Passes(curve).checking(nodes)}",
        _CHECKING,
    )


def hopeless(prices: Prices, passes: Passes, margin: float) -> Speculation:
    """Why a drafter does not draft that would gain nothing if all its guesses were right.

    ``margin`` is the least gain in tokens.
    """
    depths = lengths_of(len(prices.curve))
    if not len(depths):
        return NO_ROOM
    best = int(np.argmax(depths - prices.losses)) + 1
    figures = passes.checking(best)
    if prices.cost:
        figures += f", and {passes.drafting(prices.cost)}"
    if most_gain(passes.curve, prices.cost) > margin:
        brief = _DELAYS
        why = f"{_DELAYS} by more than they gain, even if all guesses were right"
    elif most_gain(passes.curve, 0.0) > margin:
        brief, why = _SLOW, f"{_SLOW}, even if all its guesses were right"
    else:
        brief, why = _CHECKING, f"{_CHECKING}, even if all guesses were right"
    return Speculation("parked", f"{why}{passes.together}: {figures}", brief)


def gains_too_little(guesses: Guesses, outlook: Outlook, passes: Passes) -> Speculation:
    """Why a drafter that computes does not draft: too few of its guesses are right."""
    if not guesses.judged and not guesses.judged_lately:
        return MEASURING
    expected, prices = outlook.expected, outlook.prices
    depth = int(np.argmax(expected.firsts @ expected.emitted - prices.costs)) + 1
    times = passes.curve[depth] + depth * prices.cost / passes.requests
    why = f"plain decoding is faster here{passes.together}"
    brief = f"the draft gains too little ({guesses.share} right)"
    if max(guesses.judged, guesses.judged_lately) < _ENOUGH:
        why = f"too little is known of the draft{passes.together}"
        brief = "too few guesses to tell"
    return Speculation(
        "parked",
        f"{why}: {guesses}, and a round with {depth} guess{'es' * (depth > 1)} takes "
        f"{times:.1f} times as long as one without",
        brief,
    )


def unsure(guesses: Guesses) -> Speculation:
    """Why a drafter that is asked drafts nothing: it is not confident of its next guess."""
    if not guesses.judged and not guesses.judged_lately:
        return MEASURING
    return Speculation(
        "parked",
        f"the draft is asked, but is not confident enough of its next guess: {guesses}",
        "the draft is not confident now",
    )


def not_read(unread: int, reads: bool | None, tokens: float) -> Speculation:
    """Why a drafter that may pay does not draft: it has not read the text.

    ``reads`` tells whether it will, None where that was not decided yet; reading takes the time of
    so many ``tokens``.
    """
    why = f"the draft has not read {unread} tokens of this text"
    if reads:
        return Speculation("parked", f"{why} yet", "the draft is reading the text")
    if reads is False:
        why += (
            f": reading them takes the time of {tokens:.1f} tokens, more than it is expected to "
            "save in this reply, or than may be risked for it"
        )
    return Speculation("parked", why, "the draft has not read this text")


def nothing_likely(guesses: Guesses) -> Speculation:
    """Why a drafter that copies from the text drafts nothing: how its guesses did in this reply."""
    if not guesses.judged:
        return NOTHING_YET
    return Speculation(
        "parked",
        f"no match in the text is likely enough now: {guesses.right} of {guesses.judged} guesses "
        "were right in this reply",
        "no likely match in the text now",
    )


def nothing_proposed(rounds: int) -> Speculation:
    """Why nothing is drafted although drafters are asked every round for drafts of fixed length."""
    return Speculation(
        "parked",
        f"the drafters proposed nothing in the last {rounds} rounds",
        "nothing to draft from now",
    )


def slow_answer(share: float) -> Speculation:
    """Why a drafter that copies is not asked: its answer takes that share of a plain pass."""
    return Speculation(
        "parked",
        f"looking for a match takes {share:.0%} of the time of a token, more than this reply can "
        "lose now",
        "looking for a match takes too long",
    )


def not_affordable(outlook: Outlook, allowed: float, most: float, passes: Passes) -> Speculation:
    """Why a drafter does not draft that is expected to pay: this reply may lose ``allowed`` tokens,
    and the other requests can bear a delay of ``most`` tokens by the draft.
    """
    prices, tuning = outlook.prices, outlook.tuning
    least = max(0.0, float(prices.losses.min(initial=np.inf)))
    delays = (
        f"{_DELAYS}{passes.together}: a rejected one delays them by {least:.1f} tokens in all, "
        f"and they can bear {max(0.0, most):.1f} now"
    )
    if Gain(outlook, allowed).tokens() > tuning.margin:
        return Speculation("parked", delays, _DELAYS)
    limit = max(0.0, tuning.rejected * allowed)
    if least > limit:
        why = (
            f"a rejected draft costs the time of {least:.1f} tokens, more than this reply may "
            f"risk for one so far ({limit:.1f})"
        )
    else:
        mean = outlook.expected.firsts @ prices.shortfall(outlook.expected)
        why = (
            f"rejected drafts are expected to cost {float(mean.min()):.2f} tokens a round, too "
            f"much for the {max(0.0, allowed):.2f} that this reply can lose so far"
        )
    if Gain(outlook, most=most).tokens() <= tuning.margin:
        why += f"; besides, {delays}"
    return Speculation("parked", why, _RISK)


__all__ = [
    "MEASURING",
    "NOTHING_YET",
    "NOT_ALLOWED",
    "NO_ROOM",
    "Guesses",
    "Passes",
    "breadth_costs",
    "gains_too_little",
    "hopeless",
    "not_affordable",
    "not_read",
    "nothing_likely",
    "nothing_proposed",
    "slow_answer",
    "unsure",
]
