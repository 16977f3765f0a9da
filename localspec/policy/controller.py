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

from collections.abc import Collection, Mapping, Sequence

from localspec.core.events import Speculation
from localspec.core.plan import (
    NOTHING,
    PLAIN,
    Branching,
    DraftPlan,
    DraftStep,
    Evidence,
    Outcome,
    RequestState,
)
from localspec.policy.costs import Costs
from localspec.policy.estimates import Estimates
from localspec.policy.gain import Gain, GainPace, PriceList, Prices, most_gain, never_paid
from localspec.policy.ledger import Key, Ledger, Stakes
from localspec.policy.pass_costs import PassCosts, bucket_of
from localspec.policy.probes import ProbeSchedule
from localspec.policy.reasons import (
    BREADTH_COSTS,
    NOTHING_YET,
    not_affordable,
    nothing_likely,
    why_parked,
)
from localspec.policy.sharing import Sharing
from localspec.policy.storage import Knowledge
from localspec.policy.trees import Trees
from localspec.policy.tuning import ControllerTuning

K_MAX = 31
"""The longest draft: 32 rows in a pass."""
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
        tuning: ControllerTuning = ControllerTuning(),  # noqa: B008 - frozen
    ) -> None:
        """``knowledge`` has costs for at least one bucket of context length and is updated;
        ``sources`` are the names of the drafters in order of preference, ``free`` those of them
        that copy from the text, ``branching`` those that draft trees where the budget has room.
        """
        self.knowledge = knowledge
        self._passes = PassCosts(knowledge.costs, k_max, tuning.curve_every)
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
        self._probes = ProbeSchedule(tuning.probes)
        self._lengths: dict[int, int] = {}
        """Tokens by sequence, at the last plan."""
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
        """Whether a drafter that computes may come to draft: then it reads the prompt together with
        the target, and a probe during the reply costs next to nothing.
        """
        expected = False
        self._passes.read(state.length, 1, self._round)
        for source in self._sources:
            if source in self._free or not state.may_use(source):
                continue
            cost = self._cost(source)
            if most_gain(self._passes.curve, cost) > self._tuning.gain.margin:
                key = source, state.sampling
                drafter = self._estimates.drafter(key)
                hopeless = never_paid(drafter, self._passes.curve, cost, self._tuning.gain)
                expected = self._probes.reads_prompt(key, hopeless) or expected
            self._probes.has_read(state.seq, source, state.length if expected else 0)
        return expected

    def _cost(self, source: str) -> float:
        """Cost of a drafted token, in plain passes."""
        return 0.0 if source in self._free else self.costs.draft(source) / self.costs.verify(1)

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        self._round += 1
        self._passes.read(max(s.length for s in states), len(states), self._round)
        self._lengths = {s.seq: s.length for s in states}
        self._trials.clear()
        for state in states:
            if not state.foreign and (state.emitted == 0 or state.seq not in self._ledgers):
                self._begin(state)
        self._sharing.among([s.seq for s in states if not s.foreign])
        plans = [PLAIN if state.foreign else self._plan(state) for state in states]
        if self._round - self._plain_round >= self._tuning.plain_every:
            return [PLAIN] * len(states)
        return plans

    def _begin(self, state: RequestState) -> None:
        """A reply begins."""
        if (last := self._ledgers.get(state.seq)) is not None:
            self._stakes.close(last, self._estimates.kind(state.seq), last.drafters)
        sources = [*filter(state.may_use, self._sources)]
        self._ledgers[state.seq] = self._stakes.open(state.sampling, sources)
        self._estimates.new_text(state.seq, state.sampling, sources)
        self._probes.new_reply(self._round)

    def _plan(self, state: RequestState) -> DraftPlan:
        tuning = self._tuning
        steps: list[DraftStep] = []
        probe: DraftStep | None = None
        drafting, why = self._idle < tuning.quiet, NOTHING_YET
        instead = 1.0
        ledger = self._ledgers[state.seq]
        curve = self._sharing.charged(self._passes.curve, state.seq)
        for source in filter(state.may_use, reversed(self._sources)):
            text, allowed = self._estimates.text(state.seq, source), ledger.allowed(source)
            cost, breadth = (
                self._cost(source),
                self._trees.breadth(source, text, self._passes.curve),
            )
            if breadth < self._trees.least(source):
                why = BREADTH_COSTS
                continue
            prices = self._prices.of(source, curve, breadth, cost := self._cost(source))
            gain = Gain(text, prices, allowed, tuning.gain)
            if source in self._free:
                if why is NOTHING_YET:
                    why = nothing_likely(*ledger.guesses(source))
                if self._may_ask(source, ledger):
                    steps.insert(0, self._step(source, breadth, gain, instead))
                continue
            if gain.tokens() > tuning.gain.margin:
                self._probes.drafts((source, state.sampling))
                steps.insert(0, self._step(source, breadth, gain, instead))
                instead = max(instead, gain.rate())
                drafting = True
                continue
            why = why_parked(text, curve, cost, tuning.gain.margin)
            if Gain(text, prices).tokens() > tuning.gain.margin:
                why = not_affordable(curve, cost, allowed)
            step = self._parked(state, source, breadth, Gain(text, prices), allowed)
            if step is not None and step.probe:
                probe = step
            elif step is not None:
                steps.insert(0, step)
        self.speculation = Speculation("on") if drafting else why
        return DraftPlan((probe,) if probe is not None else tuple(steps))

    def _parked(
        self, state: RequestState, source: str, breadth: int, gain: Gain, allowed: float
    ) -> DraftStep | None:
        """A trial of a parked drafter, or a probe, where one is due. A probe is all that is drafted
        in its round, or a draft would take its place.
        """
        tuning, key = self._tuning, (source, state.sampling)
        text, cost = self._estimates.text(state.seq, source), gain.prices.cost
        faster = 1 + tuning.faster * (gain.prices.curve - 1)
        hoped = Gain(text, Prices(faster, cost), allowed, tuning.gain)
        if hoped.tokens() > tuning.gain.margin and self._probes.may_try(key, self._round):
            self._trials.add(key)
            return self._step(source, breadth, hoped, 1.0)
        if state.seq in self._copying or most_gain(faster, cost) <= tuning.gain.margin:
            return None
        here = {state.seq: state.length}
        hopeless = never_paid(text, self._passes.curve, cost, tuning.gain)
        if self._probes.due(key, self._round, here, cost, allowed, hopeless=hopeless):
            return DraftStep(source, NOTHING, probe=True)
        return None

    def _step(self, source: str, breadth: int, gain: Gain, instead: float) -> DraftStep:
        pace = GainPace(gain, instead)
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
        drafting = sum(o.draft_s for o in outcomes)
        self.costs.passed(len(outcomes) * (1 + widest), max(o.round_s for o in outcomes) - drafting)
        self._idle = 0 if widest else self._idle + 1
        if not widest:
            self._plain_round = self._round
        self._copying = {o.seq for o in outcomes if o.accepted and o.source in self._free}
        for o in outcomes:
            if not o.foreign:
                self._learn_cost(o)
        self._settle(outcomes)
        self._probes.round_ended()
        drafted = {(o.seq, o.source) for o in outcomes if o.proposed}
        for e in evidence:
            self._estimates.learn(e)
            ledger = self._ledgers.get(e.seq)
            if ledger is not None:
                ledger.predicted(e.source, e.accepted, drafted=(e.seq, e.source) in drafted)

    def _learn_cost(self, o: Outcome) -> None:
        """Record what drafting cost: an answer, drafted tokens, or a probe."""
        if o.source in self._free:
            if o.draft_s > 0:
                known = self.costs.draft(o.source) > 0
                self.costs.drafted(o.source, 1, o.draft_s if known else min(o.draft_s, ANSWER))
        elif o.considered:
            self.costs.drafted(o.source, o.considered, o.draft_s)
            self._probes.has_read(o.seq, o.source, self._lengths.get(o.seq, 0))
        elif o.draft_s > 0:
            length, cost = self._lengths.get(o.seq, 0), o.draft_s / self.costs.verify(1)
            self._probes.probed(o.seq, o.source, length, cost, self._cost(o.source))

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Credit tokens gained over plain decoding at *expected* pass cost, so that a stall is not
        charged to the drafter. The extra time of a pass is shared by those who drafted.
        """
        widest = max(o.proposed for o in outcomes)
        longer = float(self._passes.curve[min(widest, len(self._passes.curve) - 1)]) - 1
        drafters = sum(o.proposed > 0 for o in outcomes)
        share = len(outcomes) / drafters * longer if drafters else 0.0
        for o in outcomes:
            ledger = self._ledgers.get(o.seq)
            if o.foreign or ledger is None:
                continue
            answer = o.draft_s / self.costs.verify(1)
            spent = o.considered * self._cost(o.source) if o.considered else answer
            gain = o.accepted - spent - (share if o.proposed else 0.0)
            ledger.settle(1 + o.accepted + o.forced, gain)
            if o.proposed:
                ledger.drafters.add(o.source)
            self._sharing.drafted(o.seq, o.proposed > 0)
            key = o.source, self._estimates.kind(o.seq)
            if key in self._trials:
                self._probes.tried(key, self._round, o.proposed > 0, -gain)


__all__ = ["K_MAX", "Controller", "bucket_of"]
