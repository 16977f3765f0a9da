"""Tells whether each running request is drafted for, and if not, the reason.

The cause is recorded when a round is planned, with the figures that decided; its sentence is made
only when it is asked for, and again only where its figures have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from localspec.core.events import Speculation
from localspec.core.plan import Outcome
from localspec.policy.gain import Expected, Gain, Outlook
from localspec.policy.parts import Parts
from localspec.policy.reading import PromptReading
from localspec.policy.reasons import (
    NO_ROOM,
    NOT_ALLOWED,
    NOTHING_YET,
    Guesses,
    Passes,
    breadth_costs,
    gains_too_little,
    hopeless,
    not_affordable,
    not_read,
    nothing_likely,
    slow_answer,
    unsure,
)
from localspec.policy.trials import Trials

Decided = Literal["breadth", "gain", "unread", "ledger", "copies", "answer", "asked"]
"""What keeps a drafter from drafting: trees cost too much; it gains too little; it has not read the
text; the reply cannot afford it; it copies, and has nothing likely; its answer takes too long;
nothing: it is asked."""

ON = Speculation("on")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one drafter does not draft in a round."""

    source: str
    decided: Decided
    outlook: Outlook | None = None
    allowed: float = 0.0
    """What the reply may lose."""
    most: float = 0.0
    """What the other requests can bear."""
    breadth: int = 1
    unread: int = 0


@dataclass(slots=True)
class _Reply:
    """A running reply."""

    idle: int
    """Rounds since its last draft, or as many as make it parked."""
    causes: Sequence[Cause] = ()
    requests: int = 1
    fruitless: int = 0
    """Rounds in a row in which a drafter that computes was asked and nothing was drafted."""
    considered: bool = False
    """Whether such a drafter computed anything in the last of them."""
    known: dict[str, tuple[Expected, tuple[object, ...], Speculation]] = field(default_factory=dict)
    """Drafter -> figures, and the sentence with them."""
    said: tuple[Sequence[Cause], Speculation] | None = None
    """The last answer, if nothing was shown since, and the causes that it was made of."""


class Standing:
    """Says of every request whether it is drafted for, and why not."""

    def __init__(self, parts: Parts, trials: Trials, reading: PromptReading) -> None:
        self._parts, self._trials, self._reading = parts, trials, reading
        self._replies: dict[int, _Reply] = {}
        self._last: int | None = None

    def begin(self, seq: int) -> None:
        """A reply begins."""
        self._replies[seq] = _Reply(self._parts.tuning.quiet)

    def planned(self, seq: int, causes: Sequence[Cause]) -> None:
        """A round was planned; ``causes`` are those of all drafters that may draft for the request,
        in order of preference.
        """
        reply = self._replies[seq]
        reply.causes, reply.requests = causes, self._parts.planned.requests
        self._last = seq

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """A round has ended. A trial is not a sign that drafts pay."""
        for o in outcomes:
            reply = self._replies.get(o.seq)
            if o.foreign or reply is None:
                continue
            trial = self._trials.made((o.source, self._parts.estimates.kind(o.seq)))
            if o.proposed or o.considered or o.probed is not None:
                reply.said = None
            if o.forced or (o.proposed and not trial):
                reply.idle = reply.fruitless = 0
                continue
            reply.idle += 1
            if any(cause.decided == "asked" for cause in reply.causes):
                reply.fruitless += 1
                reply.considered = o.considered > 0

    def of(self, seq: int) -> Speculation:
        """The state of one request, as of its last round."""
        reply, quiet = self._replies.get(seq), self._parts.tuning.quiet
        if reply is None or reply.idle < quiet:
            return ON
        asked = any(cause.decided == "asked" for cause in reply.causes)
        if asked and reply.fruitless < quiet:
            return ON
        if reply.said is None or reply.said[0] is not reply.causes:
            reply.said = reply.causes, self._why(seq, reply)
        return reply.said[1]

    @property
    def last(self) -> Speculation:
        """The state of the request that was planned last; on before any was."""
        return ON if self._last is None else self.of(self._last)

    def _why(self, seq: int, reply: _Reply) -> Speculation:
        """The reason of the most preferred drafter that computes, else of that which copies."""
        if not reply.causes:
            return NOT_ALLOWED
        free = self._parts.free
        computing = [cause for cause in reply.causes if cause.source not in free]
        shown = next(iter(computing), None)
        if shown is not None:
            why = self._sentence(seq, reply, shown)
            if len(computing) > 1 and why.reason is not None:
                return Speculation(why.state, f"{shown.source}: {why.reason}", why.brief)
            return why
        found = [self._sentence(seq, reply, cause) for cause in reply.causes]
        return next((why for why in found if why is not NOTHING_YET), NOTHING_YET)

    def _sentence(self, seq: int, reply: _Reply, cause: Cause) -> Speculation:
        """The reason of one drafter; the last one where its figures are the same."""
        outlook = cause.outlook
        if outlook is None:
            return self._without_outlook(cause)
        guesses = self._guesses(seq, cause.source)
        figures: tuple[object, ...] = (
            cause.decided, guesses, outlook.prices, reply.requests, reply.considered
        )  # fmt: skip
        if cause.decided != "gain":
            limits = round(cause.allowed, 2), round(cause.most, 1)
            figures = *figures, cause.unread, self._reading.decided(seq), *limits
        known = reply.known.get(cause.source)
        if known is not None and known[0] is outlook.expected and known[1] == figures:
            return known[2]
        why = self._with_outlook(seq, reply, cause, outlook, guesses)
        reply.known[cause.source] = outlook.expected, figures, why
        return why

    def _without_outlook(self, cause: Cause) -> Speculation:
        parts = self._parts
        if cause.decided == "breadth":
            nodes = parts.trees.least(cause.source) * parts.tuning.trees.shallow
            return breadth_costs(parts.passes.unpadded, nodes)
        return slow_answer(parts.costs.draft(cause.source) / parts.costs.verify(1))

    def _with_outlook(
        self, seq: int, reply: _Reply, cause: Cause, outlook: Outlook, guesses: Guesses
    ) -> Speculation:
        parts = self._parts
        margin, prices = parts.tuning.gain.margin, outlook.prices
        whole = parts.passes.unpadded if cause.breadth > 1 else parts.passes.curve
        passes = Passes(whole[:: cause.breadth], reply.requests, cause.breadth)
        copies = cause.decided == "copies"
        if cause.decided in {"gain", "copies"} and prices.most_gain() <= margin * (not copies):
            return hopeless(prices, passes, margin * (not copies))
        match cause.decided:
            case "copies" if not guesses.judged:
                why = NOTHING_YET
            case "copies" if Gain(outlook, cause.allowed, cause.most).longest().any():
                why = nothing_likely(guesses)
            case "unread":
                cost = parts.cost(cause.source, reply.requests)
                passing = parts.costs.verify(max(1, cause.unread)) / parts.costs.verify(1)
                why = not_read(cause.unread, self._reading.decided(seq), cost * passing)
            case "asked":
                why = unsure(guesses) if reply.considered else NO_ROOM
            case "gain":
                why = gains_too_little(guesses, outlook, passes)
            case _:
                why = not_affordable(outlook, cause.allowed, cause.most, passes)
        return why

    def _guesses(self, seq: int, source: str) -> Guesses:
        parts = self._parts
        verdicts = parts.estimates.text(seq, source).verdicts
        return Guesses(*parts.ledgers[seq].guesses(source), sum(verdicts), len(verdicts))


__all__ = ["Cause", "Decided", "Standing"]
