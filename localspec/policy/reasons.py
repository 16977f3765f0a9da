"""Says why nothing is drafted for a reply: in full with the figures that decided, and in brief."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from localspec.core.events import Speculation
from localspec.core.plan import Outcome
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.decide import Candidate, Decided, Decision
from localspec.policy.prices import MARGIN, Prices, most_gain, zero_to

_CHECKING = "checking drafts costs too much here"
_SLOW = "the draft is too slow here"
_DELAYS = "drafts would slow the replies beside it"
QUIET = 16
"""Rounds of a reply without a draft after which it is reported as parked."""
ENOUGH = 8
"""Guesses from which on a share of them is shown."""

parked = partial(Speculation, "parked")
ON = Speculation("on")
NOT_ALLOWED = Speculation("off", "switched off for this reply", "switched off for this reply")
NOTHING_YET = parked(
    "nothing to draft from yet: no passage of the text has been found again",
    "nothing to draft from yet",
)
MEASURING = parked(
    "the draft model is not measured yet: none of its guesses was compared with the target",
    "the draft model is not measured yet",
)
NO_ROOM = parked(
    "a draft has no room: the pass, the context or the reply is full", "a draft has no room"
)


@dataclass(frozen=True, slots=True)
class Guesses:
    """How often a drafter was right: counts of tokens compared with those emitted."""

    right: int
    judged: int
    """In this reply."""
    right_lately: int = 0
    judged_lately: int = 0
    """The last ones in all replies, this one included."""

    @classmethod
    def of(cls, text: AcceptanceEstimate) -> Guesses:
        """The guesses that an estimate has counted."""
        return cls(text.right, text.compared, sum(text.verdicts), len(text.verdicts))

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
        if self.judged >= ENOUGH or self.judged_lately <= self.judged:
            return f"{self.right / self.judged:.0%}"
        return f"{self.right_lately / self.judged_lately:.0%}"


@dataclass(slots=True)
class Status:
    """What a running reply has shown: whether it is drafted for, and what reasons are made of."""

    texts: Mapping[str, AcceptanceEstimate]
    """What drafters have shown in it, by name."""
    requests: int = 1
    """Requests of the last round."""
    unread: int = 0
    """Tokens that drafters had not read in it."""
    considered: bool = False
    """Whether a drafter that computes did so when it was asked last."""
    idle: int = QUIET
    """Rounds since the last draft, or as many as make it parked."""
    fruitless: int = 0
    """Rounds in a row in which a drafter that computes was asked and nothing was drafted."""

    def learn(self, o: Outcome, decision: Decision, *, tried: bool) -> None:
        """A round has ended. A trial is not a sign that drafts pay."""
        if o.forced or (o.proposed and not tried):
            self.idle = self.fruitless = 0
            return
        self.idle += 1
        if decision.asked:
            self.fruitless += 1
            self.considered = o.considered > 0

    def say(self, decision: Decision) -> Speculation:
        """On, parked or off, as of the last round."""
        if self.idle < QUIET or (decision.asked and self.fruitless < QUIET):
            return ON
        return why_parked(decision.candidates, self)


def why_parked(candidates: Sequence[Candidate], shown: Status) -> Speculation:
    """The reason of the most preferred drafter that computes, else of one that copies."""
    if not candidates:
        return NOT_ALLOWED
    computing = [c for c in candidates if not c.belief.copies]
    if not computing:
        found = [sentence(c, shown) for c in candidates]
        return next((why for why in found if why is not NOTHING_YET), NOTHING_YET)
    why = sentence(computing[0], shown)
    if len(computing) > 1 and why.reason is not None:
        return Speculation(why.state, f"{computing[0].belief.source}: {why.reason}", why.brief)
    return why


def sentence(c: Candidate, shown: Status) -> Speculation:
    """Why one drafter drafts nothing."""
    prices, margin = c.belief.prices, 0.0 if c.belief.copies else MARGIN
    match c.decided:
        case Decided.BREADTH:  # its narrowest trees do not pay
            nodes = min(4 * c.belief.branching.least, len(prices.measured) - 1)
            why = f"{_CHECKING}, several guesses for each place: "
            found = parked(why + _checking(prices, nodes, 1, 1), _CHECKING)
        case Decided.ANSWER:
            why = f"looking for a match takes {c.belief.answer:.0%} of the time of a token, more "
            why += "than this reply can lose now"
            found = parked(why, "looking for a match takes too long")
        case Decided.UNREAD:
            why = f"the draft has not read {shown.unread} tokens of this text"
            found = parked(why, "the draft has not read this text")
        case Decided.GIVES_WAY:
            why = "another drafter drafts for all requests, which gains more"
            found = parked(why, "another drafter drafts now")
        case Decided.BUDGET:
            found = not_affordable(c, shown.requests)
        case Decided.GAIN | Decided.TRIAL | Decided.COPIES if prices.most_gain <= margin:
            found = hopeless(prices, shown.requests, c.belief.breadth, margin)
        case _:
            found = _guessed(c, Guesses.of(shown.texts[c.belief.source]), shown)
    return found


def _guessed(c: Candidate, guesses: Guesses, shown: Status) -> Speculation:
    """Why one drafter drafts nothing that might pay: what its guesses have shown."""
    if c.belief.copies:
        why = f"no match in the text is likely enough now: {guesses}"
        return parked(why, "no likely match in the text now") if guesses.judged else NOTHING_YET
    no_room = c.belief.agreed is not None and not c.belief.agreed.best
    if no_room or (c.decided is Decided.ASKED and not shown.considered):
        return NO_ROOM
    if not guesses.judged and not guesses.judged_lately:
        return MEASURING
    if c.decided is Decided.ASKED:
        why = f"the draft is asked, but is not confident enough of its next guess: {guesses}"
        return parked(why, "the draft is not confident now")
    return gains_too_little(guesses, c, shown.requests)


def _together(requests: int) -> str:
    """How many requests run at once, in words; nothing for one."""
    return f" with {requests} requests at once" if requests > 1 else ""


def _checking(prices: Prices, depth: int, requests: int, breadth: int) -> str:
    """What checking a draft of that depth takes."""
    each = " each" * (requests > 1)
    tokens, times = 1 + depth * breadth, prices.measured[depth]
    return f"checking {tokens} tokens{each} takes {times:.1f} times as long as one{each}"


def hopeless(prices: Prices, requests: int, breadth: int, margin: float) -> Speculation:
    """Why nothing is drafted that would gain at most ``margin`` if all guesses were right."""
    depths = zero_to(len(prices.costs))[1:]
    if not len(depths):
        return NO_ROOM
    figures = _checking(prices, int(np.argmax(depths - prices.costs)) + 1, requests, breadth)
    if prices.cost:
        share, each = prices.cost, " of each" * (requests > 1)
        times = f"{share:.1f} times as long as" if share > 1 else f"{share:.0%} of the time of"
        figures += f", and drafting one{each} takes {times} a plain one"
    brief = _SLOW if most_gain(prices.measured, 0.0) > margin else _CHECKING
    if most_gain(prices.measured, prices.cost) > margin:
        brief = _DELAYS
    return parked(f"{brief}, even if all guesses were right{_together(requests)}: {figures}", brief)


def gains_too_little(guesses: Guesses, c: Candidate, requests: int) -> Speculation:
    """Why a drafter that computes does not draft: too few of its guesses are right."""
    agreed, prices = c.belief.agreed, c.belief.prices
    depth = _usual(c)[1] if agreed is None else agreed.best
    times = prices.costs[depth - 1]
    why = f"plain decoding is faster here{_together(requests)}"
    brief = f"the draft gains too little ({guesses.share} right)"
    if max(guesses.judged, guesses.judged_lately) < ENOUGH:
        why = f"too little is known of the draft{_together(requests)}"
        brief = "too few guesses to tell"
    figures = f"a round with {depth} guess{'es' * (depth > 1)}"
    if agreed is not None:
        figures += f" each emits {agreed.best_emits:.2f} times as many tokens of all, and"
        return parked(f"{why}: {guesses}, and {figures} takes {times:.2f} times as long", brief)
    return parked(
        f"{why}: {guesses}, and {figures} takes {times:.1f} times as long as one without", brief
    )


def _usual(c: Candidate) -> tuple[float, int]:
    """Acceptance of a usual first token, and the length that gains most with it."""
    expected = c.belief.expected()
    chance = float(expected.firsts @ expected.table)
    return chance, int((expected.emitted(chance) - c.belief.prices.costs).argmax()) + 1


def not_affordable(c: Candidate, requests: int) -> Speculation:
    """Why nothing is drafted that may pay: it may lose more than this reply has, or than all."""
    agreed = c.belief.agreed
    if agreed is None:
        chance, best = _usual(c)
        risk, budget = c.belief.expected().risk(c.belief.prices, chance)[best - 1], c.budgets.reply
        whose = "this reply can lose"
    else:
        risk, budget = agreed.best_risk, agreed.budget
        whose = f"each of {requests} replies can lose"
        if risk <= max(0.0, budget):
            why = f"{_DELAYS}{_together(requests)}: some can lose no more by them now"
            return parked(why, _DELAYS)
    why = f"a draft may lose {risk:.1f} tokens if fewer guesses are right than expected, and "
    return parked(
        f"{why}{whose} {max(0.0, budget):.1f} now", "wrong guesses would cost too much yet"
    )


def nothing_proposed(rounds: int) -> Speculation:
    """Why nothing is drafted although drafters are asked every round for drafts of fixed length."""
    why = f"the drafters proposed nothing in the last {rounds} rounds"
    return parked(why, "nothing to draft from now")
