"""The controller: draft as far as it pays on this machine, and never slower than plain decoding.

It maximises E[emitted] / seconds of a round, in units of plain decoding. E[emitted] comes from
calibrated confidences (`localspec.policy.acceptance`), seconds from the measured curve
(`localspec.policy.costs`), the comparison is in `localspec.policy.gain`, and the possible loss of a
reply is limited by its `localspec.policy.ledger`. Leviathan et al. 2023, section 3.3, choose one K
for all rounds from a mean acceptance and a cost ratio; here each token is decided before it is
drafted.

A drafter that copies from the text (suffix, n-gram) costs nothing but its answer: it is asked in
every round, and each of its matches is judged by what matches like it were worth. A drafter that
computes (a draft model) is asked while that is expected to pay; else it is *parked* and now and
then it probes: it reads the tokens that it missed in one pass and compares its own predictions with
them. A probe brings evidence on many tokens for one pass of the draft, and costs no target pass. An
unknown draft model starts with a probe.

Several requests share a pass of one width. A request that drafts further widens it for all, so a
draft is charged the extra time of the whole pass, divided by the requests that are expected to use
it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from localspec.core.branching import Branching
from localspec.core.events import Speculation
from localspec.core.plan import (
    NO_LIMIT,
    NOTHING,
    PLAIN,
    Budget,
    DraftPlan,
    DraftStep,
    Evidence,
    Outcome,
    RequestState,
)
from localspec.policy.costs import Costs
from localspec.policy.estimates import Estimates
from localspec.policy.gain import (
    Expected,
    Gain,
    GainPace,
    Outlook,
    Prices,
    most_gain,
    never_paid,
    prospect,
)
from localspec.policy.ledger import Key, Ledger, Stakes
from localspec.policy.outlooks import Outlooks, PriceList
from localspec.policy.pass_costs import PassCosts, bucket_of
from localspec.policy.probes import ProbeSchedule
from localspec.policy.reasons import (
    BREADTH_COSTS,
    NOTHING_YET,
    not_affordable,
    not_read,
    nothing_likely,
    why_parked,
)
from localspec.policy.reply_lengths import ReplyLengths
from localspec.policy.sharing import Sharing
from localspec.policy.storage import Knowledge
from localspec.policy.trees import Trees
from localspec.policy.tuning import ControllerTuning
from localspec.policy.winnings import Winnings

K_MAX = 31
"""The longest draft: 32 rows in a pass."""
KEPT_UP = 2
"""Tokens that a drafter reads at most in its first pass of a draft, where it drafts every round."""
ANSWER = 1e-4
"""Seconds that the first answer of a drafter that copies is taken to have lasted at most: it may
have had a long text to take in."""


class Controller:
    """The measured `Policy`: drafts where that is expected to be faster than plain decoding."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        *,
        free: Collection[str] = (),
        branching: Mapping[str, Branching] | None = None,
        k_max: int = K_MAX,
        pads: bool = False,
        tuning: ControllerTuning = ControllerTuning(),  # noqa: B008 - frozen
    ) -> None:
        """``knowledge`` has costs for at least one bucket of context length and is updated;
        ``sources`` are the names of the drafters in order of preference, ``free`` those of them
        that copy from the text, ``branching`` those that draft trees where the budget has room.
        ``pads``: whether the target pads passes over one request to wider ones that are quicker.
        """
        self.knowledge = knowledge
        self._passes = PassCosts(knowledge.costs, k_max, tuning.curve_every, pads=pads)
        self._sources = tuple(sources)
        self._free = frozenset(free)
        self._trees = Trees(branching or {}, tuning.trees)
        self._tuning = tuning
        self._estimates = Estimates(
            knowledge.acceptance, tuning.acceptance, tuning.copied, self._free
        )
        self._stakes = Stakes(tuning.ledger)
        self._ledgers: dict[int, Ledger] = {}
        """By sequence, of its running reply."""
        self._round = 0
        self._plain_round = 0
        """The last round in which nothing was drafted."""
        self._sharing = Sharing(tuning.sharing)
        self._prices = PriceList()
        self._outlooks = Outlooks(tuning.gain)
        self._reasons: dict[tuple[int, str], tuple[Expected, bool, Speculation]] = {}
        self._probes = ProbeSchedule(tuning.probes)
        self._replies = ReplyLengths(tuning.replies)
        self._winnings = Winnings(tuning.winnings)
        self._reads: dict[int, tuple[int, bool]] = {}
        """By sequence: length of the prompt that is read, and whether drafters read it too."""
        self._requests = 1
        """In the last round that was planned."""
        self._lengths: dict[int, int] = {}
        """Tokens by sequence, at the last plan."""
        self._unread: dict[int, int] = {}
        """Those of them that drafters had not read."""
        self._hopes: dict[str, tuple[Prices, tuple[float, float], Prices]] = {}
        """Drafter -> prices, how doubtful they were, and what they may be at best."""
        self._trials: set[Key] = set()
        """Parked drafters that draft in this round, to measure the costs again."""
        self._copying: set[int] = set()
        """Sequences whose last draft was copied from the text and accepted at least in part."""
        self._idle = tuning.quiet
        """Rounds since the last draft."""
        self.speculation = Speculation("on")

    @property
    def costs(self) -> Costs:
        """The costs for the context length of the last plan."""
        return self._passes.costs

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, by bucket of context length."""
        self._passes.replace(curves)

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether a drafter that computes should read what it has not read: what it is expected to
        win in the rest of the reply, in the company that the request has, is worth more than the
        time for reading, or is unknown and reading costs next to nothing.
        """
        if not state.emitted and state.seq in self._reads:
            length, reads = self._reads[state.seq]
            if length == state.length:  # the next part of the same prompt
                return reads
        self._passes.read(state.length, state.company, self._round)
        reads = False
        for source in self._sources:
            if source not in self._free and state.may_use(source):
                reads = self._worth_reading(state, source) or reads
        if not state.emitted:
            self._reads[state.seq] = state.length, reads
        return reads

    def _worth_reading(self, state: RequestState, source: str) -> bool:
        """Whether reading so many tokens is worth what the drafter may win in the reply."""
        tuning, key = self._tuning.gain, (source, state.sampling)
        cost = self._cost(source, state.company)
        factor = self._sharing.expected_factor(state.company)
        prices = Prices(1 + (self._passes.curve - 1) * factor, cost)
        passes = self.costs.verify(max(1, state.unread)) / self.costs.verify(1)
        reading, tokens = cost * passes, self._replies.expected(state)
        if most_gain(prices.curve, cost) <= tuning.margin:
            hoped = self._hoped(source, prices)
            if not self._unconfirmed or most_gain(hoped.curve, hoped.cost) <= tuning.margin:
                return False
            return not state.emitted and self._probes.explores(key, reading, passes + tokens)
        drafter = self._estimates.drafter(key)
        if state.emitted and not self._would_draft(state, source):
            return False  # a probe reads too, and shows something
        if not never_paid(drafter, prices.curve, cost, tuning):
            kind = *key, state.company
            seen = self._seen(state, source)
            gain = prospect(drafter, prices, tuning) if seen is None else seen
            won = self._winnings.expected(kind, gain) if seen is None else gain
            whole = passes + state.emitted + tokens
            known = self._winnings.known(kind) or drafter.evidence >= self._tuning.judged
            alone = state.company == 1 and tokens >= self._tuning.long
            share = self._tuning.alone if alone else self._tuning.staked
            staked = math.inf if known else share * whole
            if reading <= min(tokens * won, staked):
                return True
        if state.emitted:
            return False
        return self._probes.explores(key, reading, passes + tokens)

    def _would_draft(self, state: RequestState, source: str) -> bool:
        """Whether the drafter would draft now if it had read the text."""
        if state.seq not in self._ledgers:
            return True
        return self._outlooks.newest(state.seq, source).tokens > self._tuning.gain.margin

    def _seen(self, state: RequestState, source: str) -> float | None:
        """Tokens that the drafter is expected to win for each one of this text, by what it has
        shown in it; None where it has shown nothing.
        """
        ledger = self._ledgers.get(state.seq)
        if not state.emitted or ledger is None or ledger.guesses(source)[1] < self._tuning.shown:
            return None
        tokens = max(0.0, self._outlooks.newest(state.seq, source).tokens)
        return tokens / (1 + tokens)

    @property
    def _unconfirmed(self) -> bool:
        """Whether too few passes over several tokens have shown what they cost now."""
        return not self.costs.confirmed or self._doubtful

    @property
    def _doubtful(self) -> bool:
        """Whether what passes over several tokens cost is uncertain, since something changed."""
        return self._passes.doubt > self._tuning.unsure

    def _cost(self, source: str, requests: int) -> float:
        """Cost of a drafted token, in plain passes, to each of the ``requests`` that wait for it,
        summed up.
        """
        if source in self._free:
            return 0.0
        return self.costs.draft(source) * requests / self.costs.verify(requests)

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        self._round += 1
        self._requests = len(states)
        self._passes.read(max(s.length for s in states), len(states), self._round)
        self._lengths = {s.seq: s.length for s in states}
        self._unread = {s.seq: s.unread for s in states}
        self._trials.clear()
        for state in states:
            if not state.foreign and self._is_new(state):
                self._begin(state)
        self._sharing.among([s.seq for s in states if not s.foreign], self._passes.curve)
        plans = [PLAIN if state.foreign else self._plan(state) for state in states]
        known = self.costs.seen(1) >= self._tuning.plain_known
        every = self._tuning.plain_every if known else self._tuning.plain_first
        if self._round - self._plain_round >= every:
            return [PLAIN] * len(states)
        return plans

    def _is_new(self, state: RequestState) -> bool:
        """Whether this is the first round of a reply that it plans; one before may have been plain,
        while drafters had not read the prompt.
        """
        return state.emitted == 0 or state.seq in self._reads or state.seq not in self._ledgers

    def _begin(self, state: RequestState) -> None:
        """A reply begins."""
        if (last := self._ledgers.get(state.seq)) is not None:
            kind = self._estimates.kind(state.seq)
            self._stakes.close(last, kind, last.drafters)
            for source in last.read:
                won = last.won_by.get(source, 0.0)
                self._winnings.learn((source, kind, last.requests), won, last.emitted)
        self._replies.begin(state.seq)
        self._sharing.begin(state.seq)
        self._reads.pop(state.seq, None)
        sources = [*filter(state.may_use, self._sources)]
        ledger = self._stakes.open(state.sampling, sources)
        ledger.requests = self._requests
        if state.unread <= self._tuning.behind:
            ledger.read = {source for source in sources if source not in self._free}
        self._ledgers[state.seq] = ledger
        self._estimates.new_text(state.seq, state.sampling, sources)
        self._probes.new_reply(self._round)

    def _plan(self, state: RequestState) -> DraftPlan:
        tuning = self._tuning
        self._replies.planned(state)
        steps: list[DraftStep] = []
        probe: DraftStep | None = None
        drafting, why = self._idle < tuning.quiet, NOTHING_YET
        instead = 1.0
        ledger = self._ledgers[state.seq]
        curve, most = self._sharing.charged(state.seq), self._sharing.affordable(state.seq)
        alone = self._requests == 1
        bearable = ledger.bearable(state.emitted + self._replies.expected(state))
        for source in filter(state.may_use, reversed(self._sources)):
            text, allowed = self._estimates.text(state.seq, source), ledger.allowed(source)
            breadth = self._trees.breadth(source, text, self._passes.unpadded)
            if breadth < self._trees.least(source):
                why = BREADTH_COSTS
                continue
            own = self._passes.unpadded if breadth > 1 and alone else curve
            prices = self._prices.of(source, own, breadth, self._cost(source, self._requests))
            outlook = self._outlooks.of(state.seq, source, text, prices, self._round)
            if source in self._free:
                if why is NOTHING_YET:
                    why = nothing_likely(*ledger.guesses(source))
                if self._may_ask(source, ledger):
                    trial = self._trial_of_copied(state, source, outlook, allowed, most)
                    steps.insert(0, self._step(source, breadth, trial, instead, allowed, most))
                continue
            self._probes.has_read(state.seq, source, state.length - state.unread)
            affordable = True
            if outlook.tokens > tuning.gain.margin and state.unread <= tuning.behind:
                allowed = min(allowed, bearable)
                gain = outlook.gain(allowed, most)
                affordable = gain.tokens() > tuning.gain.margin
                if affordable:
                    self._probes.drafts((source, state.sampling))
                    steps.insert(0, self._step(source, breadth, outlook, instead, allowed, most))
                    instead = max(instead, gain.rate())
                    drafting = True
                    continue
            why = self._why_not(state, source, outlook, affordable, allowed)
            allowed = min(allowed, bearable)
            step = self._parked(state, source, breadth, outlook, allowed, most)
            if step is not None and step.probe:
                probe = step
            elif step is not None:
                steps.insert(0, step)
        self.speculation = Speculation("on") if drafting else why
        probes = () if probe is None else (probe,)
        return self._padded((*probes, *steps))

    def _padded(self, steps: tuple[DraftStep, ...]) -> DraftPlan:
        """The plan of these steps. Now and then its pass may not be padded, and has a width that
        passes are padded from unseen, if there is one.
        """
        if self._requests > 1:
            return DraftPlan(steps)
        if self._round % self._tuning.unpadded_every:
            return DraftPlan(steps, self._passes.widths)
        plan, untried = DraftPlan(steps), self._passes.untried()
        return plan.within(untried - 1, NO_LIMIT) if untried else plan

    def _why_not(
        self, state: RequestState, source: str, outlook: Outlook, affordable: bool, allowed: float
    ) -> Speculation:
        """Why a drafter that computes does not draft; written anew with what is expected of it."""
        margin = self._tuning.gain.margin
        if affordable and outlook.tokens > margin:
            return not_read(state.unread)
        known = self._reasons.get((state.seq, source))
        if known is not None and known[0] is outlook.expected and known[1] == affordable:
            return known[2]
        prices = outlook.prices
        if affordable:
            text = self._estimates.text(state.seq, source)
            passes = self._passes.curve
            why = why_parked(text, prices.curve, prices.cost, margin, self._requests, passes)
        else:
            why = not_affordable(prices.curve, prices.cost, allowed)
        self._reasons[state.seq, source] = outlook.expected, affordable, why
        return why

    def _parked(
        self,
        state: RequestState,
        source: str,
        breadth: int,
        outlook: Outlook,
        allowed: float,
        most: float,
    ) -> DraftStep | None:
        """A trial of a parked drafter, or a probe, where one is due."""
        tuning, key = self._tuning, (source, state.sampling)
        if state.unread <= tuning.behind:
            trial = self._trial(state, source, outlook, allowed, most)
            if trial is not None:
                return self._step(source, breadth, trial, 1.0, allowed, most)
        if not self._probes.may_be_due(key, self._round):
            return None
        hoped = self._hoped(source, outlook.prices)
        if state.unread > tuning.behind:  # credit is for drafts
            allowed = min(allowed, self._ledgers[state.seq].slack)
        here = {state.seq: state.length}
        if not self._probes.may_pay(source, here, hoped.cost, allowed):
            return None
        if state.seq in self._copying or hoped.most_gain() <= tuning.gain.margin:
            return None
        hopeless = self._outlooks.hopeless(state.seq, source)
        if self._probes.due(key, self._round, here, hoped.cost, allowed, hopeless=hopeless):
            return DraftStep(source, NOTHING, probe=True)
        return None

    def _trial(
        self, state: RequestState, source: str, outlook: Outlook, allowed: float, most: float
    ) -> Outlook | None:
        """The outlook by which a drafter drafts that does not pay by the known costs, where such a
        draft is due: it measures them again.
        """
        tuning, key, now = self._tuning, (source, state.sampling), self._round
        doubtful = self._doubtful
        if not self._probes.may_try(key, now, soon=doubtful):
            return None
        hoped = self._hoped(source, outlook.prices)
        copied = source in self._free and not doubtful
        bearable = tuning.bearable * state.emitted if copied else math.inf
        deepest = int(
            np.flatnonzero([-math.inf, *outlook.prices.losses] <= np.float64(bearable)).max()
        )
        prices = Prices(hoped.curve[: deepest + 1], hoped.cost)
        found = Outlook(Expected(self._estimates.text(state.seq, source), deepest), prices)
        if Gain(found, allowed, most).tokens() <= tuning.gain.margin:
            self._probes.put_off(key, now)
            return None
        self._trials.add(key)
        return found

    def _trial_of_copied(
        self, state: RequestState, source: str, outlook: Outlook, allowed: float, most: float
    ) -> Outlook:
        """The outlook by which a drafter that copies drafts: by the known costs unless too few
        passes have confirmed them.
        """
        if not self._unconfirmed:
            return outlook
        return self._trial(state, source, outlook, allowed, most) or outlook

    def _hoped(self, source: str, prices: Prices) -> Prices:
        """Prices as low as they may well be: never confirmed, of a disturbed sweep, of a machine
        that has got faster.
        """
        tuning = self._tuning
        doubts = self._passes.doubt, self._passes.draft_doubt(source)
        known = self._hopes.get(source)
        if known is not None and known[0] is prices and known[1] == doubts:
            return known[2]
        factor = min(tuning.faster, tuning.hope(doubts[0]))
        hoped = Prices(1 + factor * (prices.curve - 1), prices.cost * tuning.hope(doubts[1]))
        self._hopes[source] = prices, doubts, hoped
        return hoped

    def _step(
        self,
        source: str,
        breadth: int,
        outlook: Outlook,
        instead: float,
        allowed: float,
        most: float,
    ) -> DraftStep:
        pace = GainPace(outlook, instead, allowed, most)
        if source in self._free:  # what it costs to look further is nothing
            return DraftStep(source, Budget.chain(len(outlook.prices.costs)), pace)
        # Where nothing is affordable the pace refuses, but the refused token is evidence.
        return DraftStep(source, self._trees.budget(source, breadth, max(1, pace.depth)), pace)

    def _may_ask(self, source: str, ledger: Ledger) -> bool:
        """Whether the answer of a drafter that copies costs nothing, or no more than the reply can
        lose: passes of very small models are as short as looking something up.
        """
        answer = self.costs.draft(source) / self.costs.verify(1)
        return answer < self._tuning.cheap or answer <= ledger.slack

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and the ledgers by the gain."""
        if not outcomes:
            return
        widest = max(o.width for o in outcomes) - 1
        drafting = sum(o.apart_s for o in outcomes)
        self.costs.passed(len(outcomes) * (1 + widest), max(o.round_s for o in outcomes) - drafting)
        self._idle = 0 if widest else self._idle + 1
        if not widest:
            self._plain_round = self._round
        self._copying = {o.seq for o in outcomes if o.accepted and o.source in self._free}
        for o in outcomes:
            if not o.foreign:
                self._learn_cost(o)
        self._settle(outcomes)
        self._probes.round_ended(len(outcomes))
        drafted = {(o.seq, o.source) for o in outcomes if o.proposed}
        for e in evidence:
            self._estimates.learn(e)
            ledger = self._ledgers.get(e.seq)
            if ledger is not None:
                ledger.predicted(e.source, e.accepted, drafted=(e.seq, e.source) in drafted)

    def _learn_cost(self, o: Outcome) -> None:
        """Record what drafting cost: an answer, drafted tokens, a probe."""
        if o.probed is not None:
            length, cost = self._lengths.get(o.seq, 0), self._plain(o.probed.seconds)
            token = self._cost(o.probed.source, self._requests)
            self.costs.bounded(o.probed.source, o.probed.seconds)
            self._probes.probed(o.seq, o.probed.source, length, cost, token)
        if o.source in self._free:
            if o.draft_s > 0:
                known = self.costs.draft(o.source) > 0
                self.costs.answered(o.source, o.draft_s if known else min(o.draft_s, ANSWER))
        elif o.considered:
            if self._unread.get(o.seq, 0) <= KEPT_UP:
                self.costs.drafted(o.source, o.considered, o.draft_s)
            else:
                self.costs.bounded(o.source, o.draft_s / o.considered)
            self._probes.has_read(o.seq, o.source, self._lengths.get(o.seq, 0))

    def _reading(self, source: str, unread: int) -> float:
        """What a drafter that computes is expected to spend on the tokens that it has missed."""
        if unread <= KEPT_UP or source in self._free:
            return 0.0
        return self._probes.reading(source, unread, self._cost(source, self._requests))

    def _plain(self, seconds: float) -> float:
        """Tokens that plain decoding would have emitted in the time, for all requests together."""
        return seconds * self._requests / self.costs.verify(self._requests)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Credit tokens gained over plain decoding at *expected* pass cost, so that a stall is not
        charged to the drafter. The extra time of a pass is shared by those who drafted.
        """
        widest = max(o.proposed for o in outcomes)
        longer = float(self._passes.curve[min(widest, len(self._passes.curve) - 1)]) - 1
        drafters = sum(o.proposed > 0 for o in outcomes)
        share = len(outcomes) / drafters * longer if drafters else 0.0
        asking = 0.0
        for o in outcomes:
            ledger = self._ledgers.get(o.seq)
            if o.foreign or ledger is None:
                continue
            cost = self._cost(o.source, self._requests)
            spent = self._plain(o.draft_s)
            if o.considered:
                spent = o.considered * cost + self._reading(o.source, self._unread.get(o.seq, 0))
            if o.probed is not None:
                probing = self._plain(o.probed.seconds)
                asking += probing / len(outcomes)
                ledger.settle(0, -probing, o.probed.source)
            asking += spent / len(outcomes)
            gain = o.accepted - spent - (share if o.proposed else 0.0)
            ledger.settle(1 + o.accepted + o.forced, gain, o.source)
            if o.proposed:
                ledger.drafters.add(o.source)
            self._sharing.drafted(o.seq, o.proposed > 0)
            key = o.source, self._estimates.kind(o.seq)
            if key in self._trials:
                self._probes.tried(key, self._round, o.proposed > 0, -gain)
        n = len(outcomes)
        if n > 1:
            ends = 1 - self.costs.verify(n - 1) / self.costs.verify(n)
            emitted = {o.seq: 1 + o.accepted for o in outcomes if not o.foreign}
            self._sharing.settle(emitted, longer + asking, ends)


__all__ = ["K_MAX", "Controller", "bucket_of"]
