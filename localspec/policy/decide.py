"""Decides one request's round: a pure function of what is believed, of prices and of budgets.

For each drafter there is one candidate: it is asked, asked although that does not pay by what is
believed (a trial), reads what it has missed and compares (a probe), or does nothing. How far a
draft goes is decided while it grows, by `GainPace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from localspec.core.drafter_registry import Branching
from localspec.core.plan import NO_LIMIT, NOTHING, Budget, DraftStep
from localspec.policy.acceptance import bin_of
from localspec.policy.company import Agreed
from localspec.policy.gain import PLENTY, Budgets, Expected
from localspec.policy.prices import MARGIN, Prices, zero_to

BEHIND = 32
"""Tokens that a drafter may have missed without being charged for reading them: its next draft
reads them without a pause."""
QUICK = 0.01
"""Share of a plain pass that the answers of a drafter that copies may always take in a round."""
STEADY = 0.5
"""How far copied tokens beyond the one in question are accepted like it, not like the mean: a
long copy goes on being right, which matters where the curve has steps."""
TRIED = 3
"""Most tokens of a draft that is to measure costs: a usual one shows how steep they are."""


class Decided(StrEnum):
    """What a drafter does, or what keeps it from drafting."""

    ASKED = "asked"
    """It is asked, since that pays."""
    TRIAL = "trial"
    """It is asked, to measure what passes cost."""
    COPIES = "copies"
    """It is asked, since it copies: its matches decide."""
    BREADTH = "breadth"
    """Even the narrowest of its trees cost too much."""
    ANSWER = "answer"
    """Its answer costs too much."""
    UNREAD = "unread"
    """It has not read the text."""
    GAIN = "gain"
    """It gains too little."""
    GIVES_WAY = "gives way"
    """Another one drafts for all requests."""
    BUDGET = "budget"
    """The budgets do not have what a draft may lose."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A drafter for a request, as it is believed to be."""

    source: str
    expected: Callable[[], Expected]
    """What its drafts are expected to emit; computed where it is needed, the same every time."""
    prices: Prices
    copies: bool = False
    """Whether it copies from the text, and costs nothing but its answer."""
    answer: float = 0.0
    """What the answers to all requests take together, in their plain passes."""
    looks: bool = False
    """Whether it may be asked although that is believed to take too long, to see what it takes."""
    breadth: int = 1
    """Nodes at each depth; 0 if even the narrowest of its trees cost too much."""
    branching: Branching = Branching()  # noqa: RUF009 - frozen
    at_best: Prices | None = None
    """Prices as low as they may well be, where a trial is due that would measure them."""
    probe: float = math.inf
    """What reading the text that it missed costs the reply, where a probe is due that is worth it:
    0 where the session's budget pays instead."""
    agreed: Agreed | None = None
    """What all requests do with it, where there are several and it computes."""
    reads: int = NO_LIMIT
    """Most tokens that the probe reads: one, to see what a drafted token costs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one drafter does in a round, and the figures that decided."""

    belief: Belief
    decided: Decided
    budgets: Budgets
    gain: float = 0.0
    """Tokens that a round with it is expected to gain."""
    probes: bool = False
    """Whether it reads what it has missed and compares."""
    looks: bool = False
    """Whether it copies and is asked only to see what its answer takes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The steps of the next round, and why."""

    steps: tuple[DraftStep, ...]
    candidates: tuple[Candidate, ...]
    """In order of preference."""

    @property
    def asked(self) -> bool:
        """Whether a drafter that computes is asked, since that pays."""
        return any(c.decided is Decided.ASKED for c in self.candidates)


UNDECIDED = Decision((), ())


def decide(beliefs: Sequence[Belief], unread: int, budgets: Budgets) -> Decision:
    """The next round; drafters have not read ``unread`` tokens; ``beliefs`` by preference."""
    steps: list[DraftStep] = []
    probes: tuple[DraftStep, ...] = ()
    candidates: list[Candidate] = []
    rate_without = 1.0
    for belief in reversed(beliefs):
        copies = belief.copies
        candidate = _copying(belief, budgets) if copies else _computing(belief, unread, budgets)
        candidates.append(candidate)
        if candidate.probes:
            probes = (DraftStep(belief.source, NOTHING, probe=True, reads=belief.reads),)
        if candidate.decided in {Decided.ASKED, Decided.TRIAL, Decided.COPIES}:
            steps.append(_step(candidate, rate_without))
        if candidate.decided is Decided.ASKED and len(beliefs) > 1:
            rate_without = max(rate_without, _rate(belief))
    return Decision((*probes, *reversed(steps)), tuple(reversed(candidates)))


def _rate(belief: Belief) -> float:
    """Tokens for the time of a plain one, by the draft that is asked for."""
    expected, costs = belief.expected(), belief.prices.costs
    if belief.agreed is None:
        return expected.rate(belief.prices)
    last = belief.agreed.depth - 1
    return float((1 + expected.accepted()[0][last]) / costs[last])


def _copying(belief: Belief, budgets: Budgets) -> Candidate:
    """It is always asked while its answers cost next to nothing: its matches tell the rest. Where
    they have cost more than they may, what is believed of them is too little.
    """
    dear = budgets.answers < 0 or belief.answer > max(QUICK, budgets.answers)
    decided = Decided.COPIES
    if not belief.breadth:
        decided = Decided.BREADTH
    elif dear and not belief.looks:
        decided = Decided.ANSWER
    elif not dear and _pays_at(belief, belief.at_best, budgets):
        decided = Decided.TRIAL
    return Candidate(belief, decided, budgets, looks=dear and decided is Decided.COPIES)


def _computing(belief: Belief, unread: int, budgets: Budgets) -> Candidate:
    """It is asked where that is expected to gain, and else only to find out."""
    prices, read = belief.prices, unread <= BEHIND
    if not belief.breadth:
        return Candidate(belief, Decided.BREADTH, budgets)
    if belief.agreed is not None:
        return _in_company(belief, belief.agreed, budgets, read=read)
    decided = Decided.GAIN
    gain = belief.expected().gain(prices) if prices.most_gain > MARGIN else -prices.cost
    if gain > MARGIN:
        affordable = _affordable(belief.expected(), prices, budgets)
        decided = Decided.UNREAD if not read else Decided.ASKED if affordable else Decided.BUDGET
    if read and decided is not Decided.ASKED and _pays_at(belief, belief.at_best, budgets):
        decided = Decided.TRIAL
    probes = decided not in {Decided.ASKED, Decided.TRIAL} and belief.probe <= budgets.looks
    return Candidate(belief, decided, budgets, gain, probes)


def _in_company(belief: Belief, agreed: Agreed, budgets: Budgets, *, read: bool) -> Candidate:
    """It is asked if all draft: they decide together."""
    decided = Decided.GAIN
    if agreed.depth:
        decided = Decided.TRIAL if agreed.tried else Decided.ASKED
    elif agreed.gives_way:
        decided = Decided.GIVES_WAY
    elif agreed.best_gain > MARGIN:
        decided = Decided.BUDGET
    gains = agreed.best > 0 and belief.expected().gain(belief.prices) > MARGIN
    if not read and (agreed.depth or gains):
        decided = Decided.UNREAD
    asked = decided in {Decided.ASKED, Decided.TRIAL}
    probes = not asked and belief.probe <= budgets.looks
    return Candidate(belief, decided, budgets, agreed.best_gain, probes)


def _pays_at(belief: Belief, prices: Prices | None, budgets: Budgets) -> bool:
    """Whether drafts are expected to pay at these prices, and the budgets to have their price."""
    if prices is None:
        return False
    expected = belief.expected()
    return expected.gain(prices) > MARGIN and _affordable(expected, prices, budgets)


def _affordable(expected: Expected, prices: Prices, budgets: Budgets) -> bool:
    """Whether it gains what is expected within the budgets. Where these have what a rejected token
    loses, how far a draft may go is for `GainPace`.
    """
    if prices.rejected <= min(budgets.reply, budgets.others):
        return True
    return expected.gain(prices, budgets) > MARGIN


def _step(candidate: Candidate, rate_without: float) -> DraftStep:
    belief, prices = candidate.belief, candidate.belief.prices
    if belief.agreed is not None:
        return DraftStep(belief.source, _budget(belief, belief.agreed.depth))
    depth = len(prices.costs)
    if belief.at_best is not None and candidate.decided is Decided.TRIAL:
        prices, depth = belief.at_best, min(TRIED, depth)
        if not belief.copies:
            rate_without = 1.0
    pace = GainPace(belief.expected, prices, rate_without, candidate.budgets)
    return DraftStep(belief.source, _budget(belief, depth), pace)


def _budget(belief: Belief, depth: int) -> Budget:
    breadth = belief.breadth
    if breadth == 1:
        return Budget.chain(depth)
    return Budget(breadth * depth, depth, breadth * belief.branching.leaves)


class GainPace:
    """A `localspec.core.plan.Pace`: includes a token where it is expected to gain."""

    def __init__(
        self,
        make: Callable[[], Expected],
        prices: Prices,
        rate_without: float = 1.0,
        budgets: Budgets = PLENTY,
    ) -> None:
        """``rate_without`` is the rate that this round would reach without this drafter. Nothing is
        computed before a drafter has something to propose.
        """
        self._make, self._prices, self._budgets = make, prices, budgets
        self._rate_without = rate_without
        self._first = -1
        self._curve: list[float] = []

    def _start(self, first: int) -> None:
        """Find the rate that a draft sets out for whose first token is in this bin."""
        if first == self._first:
            return
        if not self._curve:
            self._expected, self._curve = self._make(), self._prices.curve.tolist()
        expected, prices = self._expected, self._prices
        self._first, self._longest, self._rate = first, 0, 1.0
        chance = expected.table[first]
        emitted = expected.emitted(chance)
        if not len(emitted) or (emitted - prices.costs).max() <= 0:
            return
        fits = expected.fits(prices, chance, self._budgets)
        lengths = zero_to(len(emitted))[1:][fits]
        if len(lengths):
            self._longest = int(lengths[-1])
            self._rate = max(1.0, float(np.max(emitted[fits] / prices.costs[fits])))

    def more(self, confidences: Sequence[float]) -> bool:
        """Whether to include the last token: the first if any length beats drafting nothing, a
        later one if going on from there is expected to pay.
        """
        self._start(bin_of(confidences[0]))
        k = len(confidences)
        if k > self._longest or self._rate <= self._rate_without:
            return False
        if k == 1:
            return True
        mean, here = self._expected.mean, self._expected.table[bin_of(confidences[-1])]
        later = mean if self._prices.cost else mean + STEADY * max(0.0, here - mean)
        return self._going_on_pays(confidences[:-1], here, later, 0.0)

    def further(self, confidences: Sequence[float]) -> bool:
        """Whether computing one more q is expected to pay; its confidence is not known yet."""
        self._start(bin_of(confidences[0]))
        mean = self._expected.mean
        return self._going_on_pays(confidences, mean, mean, self._prices.cost)

    def _going_on_pays(
        self, before: Sequence[float], chance: float, later: float, paid: float
    ) -> bool:
        """Whether any number of further tokens, of which the first is accepted with ``chance``,
        beats stopping after those of ``before``, at the rate that the draft set out for: to
        maximise a ratio is to maximise E[emitted] - rate * time at the best ratio.
        """
        k, curve, table, rate = len(before), self._curve, self._expected.table, self._rate
        reach, gained = math.prod(table[bin_of(confidence)] for confidence in before), 0.0
        for longer in range(k + 1, self._longest + 1):
            reach *= chance
            gained += reach
            if gained >= rate * (curve[longer] - curve[k] + paid):
                return True
            paid += self._prices.cost
            chance = later
        return False
