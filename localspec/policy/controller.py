"""The controller: draft as far as it pays on this machine, and never slower than plain decoding.

It maximises E[emitted] / seconds of a round, in units of plain decoding. E[emitted] comes from
calibrated confidences (`localspec.policy.acceptance`), seconds from the measured curve
(`localspec.policy.costs`), the comparison is in `localspec.policy.gain`, and the possible loss is
limited by `localspec.policy.loss_budget`. Leviathan et al. 2023, section 3.3, choose one K for
all rounds from a mean acceptance and a cost ratio; here each token is decided before it is drafted.

A drafter of negligible cost (an n-gram) is asked every round. A costly one (a draft model) is asked
while that is expected to pay; else it is *parked* and now and then it probes: it reads the tokens
that it missed in one pass and compares its own predictions with them. A probe brings evidence on
many tokens for one pass of the draft, and costs no target pass. An unknown draft model starts with
a probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from localspec.core.events import Speculation
from localspec.core.plan import (
    NOTHING,
    PLAIN,
    Branching,
    Budget,
    DraftPlan,
    DraftStep,
    Evidence,
    Outcome,
    RequestState,
)
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.costs import Costs
from localspec.policy.gain import Curve, Gain, GainPace, most_gain
from localspec.policy.loss_budget import Key, LossBudget
from localspec.policy.probes import ProbeSchedule
from localspec.policy.reasons import BREADTH_COSTS, NOTHING_YET, why_parked
from localspec.policy.storage import Knowledge
from localspec.policy.tuning import ControllerTuning

K_MAX = 31
"""The longest draft: 32 rows in a pass."""


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


class Controller:
    """The measured `Policy`: drafts where that is expected to be faster than plain decoding."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        *,
        branching: Mapping[str, Branching] | None = None,
        k_max: int = K_MAX,
        tuning: ControllerTuning = ControllerTuning(),  # noqa: B008 - frozen
    ) -> None:
        """``knowledge`` has costs for at least one bucket of context length and is updated;
        ``sources`` are the names of the drafters in order of preference, ``branching`` those of
        them that draft trees where the budget has room for them.
        """
        self.knowledge = knowledge
        self.costs = knowledge.costs[min(knowledge.costs)]
        """The costs of the bucket that the last plan was for."""
        self._bucket = min(knowledge.costs)
        self._sources = tuple(sources)
        self._branching = dict(branching or {})
        self._k_max = k_max
        self._tuning = tuning
        self._kinds: dict[int, str] = {}
        """Kind of sampling by sequence."""
        self._round = 0
        self._curve: Curve = np.ones(1)
        self._loss_budget = LossBudget(tuning.loss_budget)
        self._probes = ProbeSchedule(tuning.probes)
        self._lengths: dict[int, int] = {}
        """Tokens by sequence, at the last plan."""
        self._trials: set[Key] = set()
        """Parked drafters that draft in this round, to measure the costs again."""
        self._idle = tuning.quiet
        """Rounds since the last draft."""
        self.speculation = Speculation("on")

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, by bucket of context length."""
        self.knowledge.costs.clear()
        self.knowledge.costs.update(curves)
        self._bucket = min(curves)
        self.costs = curves[self._bucket]
        self._curve = np.ones(1)

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether a costly drafter may come to draft: then it reads the prompt together with the
        target, and a probe during the reply costs next to nothing.
        """
        expected = False
        self._read_curve(bucket_of(state.length), 1)
        for source in self._sources:
            cost = self.costs.draft(source) / self.costs.verify(1)
            key = source, state.sampling
            acceptance = self.knowledge.acceptance.get(key) or self._new_estimate()
            if cost >= self._tuning.cheap and most_gain(self._curve, cost) > self._tuning.margin:
                expected = expected or not self._hopeless(acceptance, cost)
            self._probes.has_read(state.seq, source, state.length if expected else 0)
        return expected

    def _new_estimate(self) -> AcceptanceEstimate:
        return AcceptanceEstimate(tuning=self._tuning.acceptance)

    def _acceptance(self, key: Key) -> AcceptanceEstimate:
        return self.knowledge.acceptance.setdefault(key, self._new_estimate())

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        self._round += 1
        self._read_curve(bucket_of(max(s.length for s in states)), len(states))
        plans: dict[str, DraftPlan] = {}
        self._lengths = {s.seq: s.length for s in states}
        self._trials.clear()
        for state in states:
            if state.foreign:
                continue
            self._kinds[state.seq] = state.sampling
            if state.emitted == 0:
                self._loss_budget.new_reply()
                self._probes.new_reply(self._round)
                for source in self._sources:
                    self._acceptance((source, state.sampling)).new_text()
            if state.sampling not in plans:
                plans[state.sampling] = self._plan(state.sampling)
        if self._round % self._tuning.plain_every == 0:
            return [PLAIN] * len(states)
        return [PLAIN if state.foreign else plans[state.sampling] for state in states]

    def _read_curve(self, bucket: int, batch: int) -> None:
        curves, every = self.knowledge.costs, self._tuning.curve_every
        if bucket not in curves:  # start from the current one: a longer context changes it slowly
            now = {n: self.costs.verify(n) for n in self.costs.curve()}
            curves[bucket] = Costs(now, self.costs.drafts(), self.costs.tuning)
        if bucket != self._bucket or len(self._curve) == 1 or self._round % every == 1:
            self._bucket, self.costs = bucket, curves[bucket]
            seconds = [self.costs.verify(batch * (k + 1)) for k in range(self._k_max + 1)]
            self._curve = np.array(seconds) / seconds[0]

    def _plan(self, kind: str) -> DraftPlan:
        tuning = self._tuning
        steps: list[DraftStep] = []
        drafting, why = self._idle < tuning.quiet, NOTHING_YET
        instead = 1.0
        for source in reversed(self._sources):
            key = source, kind
            acceptance = self._acceptance(key)
            cost = self.costs.draft(source) / self.costs.verify(1)
            if self._breadth(key) < self._branching.get(source, Branching()).least:
                why = BREADTH_COSTS
                continue
            gain = Gain(acceptance, self._affordable(key, self._curve, cost), cost)
            if cost < tuning.cheap or gain.tokens() > tuning.margin:
                self._probes.drafts(key)
                # Where nothing is affordable the pace refuses, but the refused token is evidence.
                budget = self._budget(key, max(1, len(gain.curve) - 1))
                steps.insert(0, DraftStep(source, budget, GainPace(gain, instead, tuning.gain)))
                if cost >= tuning.cheap:
                    instead = max(instead, gain.rate())
                    drafting = True
            else:
                why = why_parked(acceptance, self._curve, cost, tuning.margin)
                faster = 1 + tuning.faster * (self._curve - 1)
                hoped = Gain(acceptance, self._affordable(key, faster, cost), cost)
                if hoped.tokens() > tuning.margin and self._probes.may_try(key, self._round):
                    budget = self._budget(key, len(hoped.curve) - 1)
                    steps.insert(0, DraftStep(source, budget, GainPace(hoped, 1.0, tuning.gain)))
                    self._trials.add(key)
                    continue
                useless = most_gain(faster, cost) <= tuning.margin
                if not useless and self._probes.due(key, self._round, self._lengths, cost):
                    steps.append(DraftStep(source, NOTHING, probe=True))
                    if self._hopeless(acceptance, cost):
                        self._probes.seldom(key, self._round)
        self.speculation = Speculation("on") if drafting else why
        return DraftPlan(tuple(steps))

    def _breadth(self, key: Key) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring."""
        branching = self._branching.get(key[0])
        if branching is None:
            return 1
        tuning = self._tuning
        longer = tuning.free
        if branching.least == 1:
            acceptance = self.knowledge.acceptance.get(key) or self._new_estimate()
            mean = acceptance.mean(acceptance.table())
            longer = self._emitted(1 - branching.misses * (1 - mean)) / self._emitted(mean)
        limit = longer * self._curve[min(tuning.shallow, self._k_max)]
        paying = [
            b for b in tuning.breadths if self._curve[min(b * tuning.shallow, self._k_max)] <= limit
        ]
        return max(paying, default=1)

    def _emitted(self, acceptance: float) -> float:
        """Expected tokens of a round with a draft of usual depth."""
        return sum(acceptance**i for i in range(self._tuning.shallow + 1))

    def _budget(self, key: Key, depth: int) -> Budget:
        breadth = self._breadth(key)
        if breadth == 1:
            return Budget.chain(depth)
        leaves = breadth * self._branching[key[0]].leaves
        return Budget(nodes=breadth * depth, depth=depth, leaves=leaves)

    def _affordable(self, key: Key, curve: Curve, cost: float) -> Curve:
        """``curve`` by depth, up to the deepest draft whose complete loss the budget allows."""
        curve = curve[:: self._breadth(key)]
        loss = curve - 1 + np.arange(len(curve)) * cost
        allowed = self._loss_budget.of(key)
        longest = int(np.flatnonzero(loss[1:] <= allowed).max(initial=-1)) + 1
        return curve[: longest + 1]

    def _hopeless(self, acceptance: AcceptanceEstimate, cost: float) -> bool:
        """Whether drafting would hardly pay, with luck, even in a text whose tokens all have the
        highest confidence that ever occurred. The last text's acceptance does not count: it says
        little about the next one.
        """
        if not acceptance.evidence:
            return False
        margin = self._tuning.margin
        pays = [most_gain(self._curve, cost, p) > margin for p in acceptance.optimistic()]
        enough = acceptance.evidence >= self._tuning.enough
        rare = enough and bool(acceptance.judged[pays].sum() <= self._tuning.rare)
        return rare or not any(pays)

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and loss budgets by the gain."""
        if not outcomes:
            return
        width = sum(o.width for o in outcomes)
        drafting = sum(o.draft_s for o in outcomes)
        self.costs.passed(width, max(o.round_s for o in outcomes) - drafting)
        self._idle = 0 if width > len(outcomes) else self._idle + 1
        for o in outcomes:
            if o.foreign:
                continue
            if o.considered:
                self.costs.drafted(o.source, o.considered, o.draft_s)
                self._probes.has_read(o.seq, o.source, self._lengths.get(o.seq, 0))
            elif o.draft_s > 0:
                cost = o.draft_s / self.costs.verify(1)
                self._probes.probed(o.seq, o.source, self._lengths.get(o.seq, 0), cost)
            self._settle(o)
        self._probes.round_ended()
        drafted = {o.source for o in outcomes if o.proposed}
        for e in evidence:
            key = e.source, self._kinds.get(e.seq, "")
            self._acceptance(key).learn(e.index, e.confidence, e.accepted)
            if e.source not in drafted:
                self._loss_budget.predicted(key, e.accepted)

    def _settle(self, o: Outcome) -> None:
        """Credit tokens gained over plain decoding at *expected* pass cost, so that a stall is not
        charged to the drafter.
        """
        cost = self._curve[min(o.proposed, len(self._curve) - 1)]
        cost += o.draft_s / self.costs.verify(1)
        for source in self._sources:
            key = source, self._kinds.get(o.seq, "")
            gain = 1 + o.accepted - float(cost) if source == o.source else 0.0
            self._loss_budget.settle(key, 1 + o.accepted, gain)
            if key in self._trials and source == o.source:
                self._probes.tried(key, self._round, o.proposed > 0, -gain)


__all__ = ["K_MAX", "Controller", "bucket_of"]
