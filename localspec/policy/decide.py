"""Decides one request's round: a pure function of what is believed, of prices and of budgets.

For each drafter there is one candidate: to draft, to draft although that does not pay by what is
believed (a trial), to read what it has missed and compare (a probe), or nothing. What it is
expected to gain, what it may lose, and what the budgets have decide, and stand in the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from localspec.core.branching import Branching
from localspec.core.plan import NOTHING, Budget, DraftStep
from localspec.policy.gain import MARGIN, Expected, Weighed, weigh
from localspec.policy.pace import GainPace
from localspec.policy.prices import Prices

BEHIND = 32
"""Tokens that a drafter may have missed without being charged for reading them."""
QUICK = 0.01
"""Share of a plain pass that an answer of a drafter that copies may always take."""
Decided = Literal["asked", "trial", "copies", "breadth", "answer", "unread", "gain", "budget"]
"""What a drafter does, or what keeps it from drafting: it is asked, since that pays; it is asked to
measure what passes cost; it copies, and its matches decide; its trees cost too much; its answer
takes too long; it has not read the text; it gains too little; the budgets do not have what a draft
may lose.
"""


@dataclass(frozen=True, slots=True)
class Option:
    """A drafter for a request, as it is believed to be."""

    source: str
    expected: Callable[[], Expected]
    """What its drafts are expected to emit; computed where it is needed, the same every time."""
    prices: Prices
    copies: bool = False
    """Whether it copies from the text, and costs nothing but its answer."""
    answer: float = 0.0
    """What that takes, in plain passes."""
    breadth: int = 1
    """Nodes at each depth; 0 if even the narrowest of its trees cost too much."""
    branching: Branching = Branching()  # noqa: RUF009 - frozen
    at_best: Prices | None = None
    """Prices as low as they may well be, where a trial is due that would measure them."""
    probe: float = math.inf
    """What reading the text that it missed costs, where a probe is due that is worth it."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """What may be lost in the next round, in plain tokens."""

    reply: float
    """By drafts that are expected to pay, in the cautious case."""
    others: float
    """By the other requests of the round, if the draft is rejected; in all."""
    looks: float
    """For certain, by what is done to find out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one drafter does in a round, and the figures that decided."""

    source: str
    decided: Decided
    option: Option
    budgets: Budgets
    gain: float = 0.0
    """Tokens that a round with it is expected to gain."""
    probes: bool = False
    """Whether it reads what it has missed and compares."""

    def __str__(self) -> str:
        b = self.budgets
        return (
            f"{self.source}: {self.decided}{' and probes' * self.probes}, gain {self.gain:.2f}, "
            f"budgets {b.reply:.2f} {b.others:.2f} {b.looks:.2f}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The steps of the next round, and why."""

    steps: tuple[DraftStep, ...]
    candidates: tuple[Candidate, ...]
    """In order of preference."""

    @property
    def asked(self) -> bool:
        """Whether a drafter that computes is asked, since that pays."""
        return any(c.decided == "asked" for c in self.candidates)


UNDECIDED = Decision((), ())


def decide(options: Sequence[Option], unread: int, budgets: Budgets) -> Decision:
    """The next round of a request whose drafters have not read ``unread`` tokens; ``options`` are
    in order of preference.
    """
    steps: list[DraftStep] = []
    probes: tuple[DraftStep, ...] = ()
    candidates: list[Candidate] = []
    instead = 1.0
    for option in reversed(options):
        candidate = _copying(option, budgets) if option.copies else None
        weighed = None
        if candidate is None:
            candidate, weighed = _computing(option, unread, budgets, rated=len(options) > 1)
        candidates.append(candidate)
        if candidate.probes:
            probes = (DraftStep(option.source, NOTHING, probe=True),)
        if candidate.decided in {"asked", "trial", "copies"}:
            steps.append(_step(candidate, weighed, instead))
        if candidate.decided == "asked" and weighed is not None:
            instead = max(instead, weighed.rate)
    return Decision((*probes, *reversed(steps)), tuple(reversed(candidates)))


def _copying(option: Option, budgets: Budgets) -> Candidate:
    """It is always asked, since its answer costs next to nothing: its matches tell the rest."""
    decided: Decided = "copies"
    if not option.breadth:
        decided = "breadth"
    elif option.answer > max(QUICK, budgets.reply):
        decided = "answer"
    elif option.at_best is not None:
        tried = weigh(option.expected(), option.at_best, budgets.reply, budgets.others)
        decided = "trial" if tried.tokens > MARGIN else "copies"
    return Candidate(option.source, decided, option, budgets)


def _computing(
    option: Option, unread: int, budgets: Budgets, *, rated: bool
) -> tuple[Candidate, Weighed | None]:
    """It is asked where that is expected to gain, and else only to find out."""
    source = option.source
    if not option.breadth:
        return Candidate(source, "breadth", option, budgets), None
    decided: Decided = "gain"
    prices, gain, expected = option.prices, -option.prices.cost, option.expected()
    weighed = None
    if prices.most_gain > MARGIN and expected.may_gain(prices):
        weighed = weigh(expected, prices, budgets.reply, budgets.others, rated=rated)
        gain = weighed.unlimited
        if gain > MARGIN:
            paying = weighed.tokens > MARGIN
            decided = "unread" if unread > BEHIND else "asked" if paying else "budget"
    if decided in {"gain", "budget"} and option.at_best is not None and unread <= BEHIND:
        tried = weigh(expected, option.at_best, budgets.reply, budgets.others)
        if tried.tokens > MARGIN:
            return Candidate(source, "trial", option, budgets, gain), tried
    probes = decided != "asked" and option.probe <= budgets.looks
    return Candidate(source, decided, option, budgets, gain, probes), weighed


def _step(candidate: Candidate, weighed: Weighed | None, instead: float) -> DraftStep:
    option, budgets = candidate.option, candidate.budgets
    prices = option.prices
    if option.at_best is not None and candidate.decided == "trial":
        prices = option.at_best
        instead = instead if option.copies else 1.0
    pace = GainPace(option.expected, prices, instead, budgets.reply, budgets.others)
    if weighed is None:  # what it costs to look further is nothing
        return DraftStep(option.source, Budget.chain(len(prices.costs)), pace)
    # Where nothing is affordable the pace refuses, but the refused token is evidence.
    depth, breadth = max(1, weighed.depth), option.breadth
    budget = Budget.chain(depth)
    if breadth > 1:
        budget = Budget(breadth * depth, depth, breadth * option.branching.leaves)
    return DraftStep(option.source, budget, pace)


__all__ = ["BEHIND", "UNDECIDED", "Budgets", "Candidate", "Decided", "Decision", "Option", "decide"]
