"""The controller: draft as far as it pays on this machine, and never so that it costs.

What is maximised is E[emitted] / seconds of a round, in units of plain decoding. E[emitted] comes
from calibrated confidences (`localspec.policy.acceptance`), seconds from the measured curve
(`localspec.policy.costs`), the comparison is in `localspec.policy.gain`, and what may be risked in
`localspec.policy.loss_budget`. Leviathan et al. 2023, section 3.3, choose one K for all rounds from
a mean acceptance and a cost ratio; here each token is judged before it is drafted.

A drafter that costs next to nothing (an n-gram) is asked every round. One that costs (a draft
model) is asked while that is expected to pay; else it is *parked*, and now and then it looks: it
reads what it missed in one pass and compares its own choices with what the target said. So a look
brings evidence on many tokens for the price of one pass of the draft, and no target pass is wasted.
The first thing that ever happens with an unknown draft is such a look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from localspec.core.events import Speculation
from localspec.core.plan import PLAIN, Branching, Budget, Evidence, Outcome, DraftPlan, RequestState, DraftStep
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.costs import Costs
from localspec.policy.gain import Curve, Gain, Pace, most_gain
from localspec.policy.loss_budget import Key, LossBudget
from localspec.policy.probes import Looks
from localspec.policy.storage import Knowledge

K_MAX = 31
"""The longest draft: 32 rows in a pass."""
_CHEAP = 0.01
"""A drafter below this share of a plain pass a token is simply asked."""
_MARGIN = 0.03
"""Tokens a round that asking a costly drafter must promise."""
_PLAIN_EVERY = 128
"""One round in this many is plain, to keep the comparison honest."""
_CURVE_EVERY = 16
"""Rounds between two readings of the curve: it changes slowly."""
_BREADTHS = (2, 3, 4)
_SHALLOW = 4
"""Depth at which the cost of breadth is looked at."""
_FREE = 1.2
"""Breadth may make a pass so much longer where nothing is drafted without it."""
_HOPE = 0.4
"""What a machine might have become: of the extra time of wide passes, so much."""
_CAME, _KNOWN = 1.0, 20.0
"""Tokens of a confidence that show that there is such, and judgements before none says anything."""
_QUIET = 48
"""Rounds without a draft after which the person is told that drafting rests."""


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


class Controller:
    """Never slower, whatever is drafted."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        *,
        branching: Mapping[str, Branching] | None = None,
        k_max: int = K_MAX,
    ) -> None:
        """``knowledge`` holds costs for at least one bucket of context length and goes on
        learning; ``sources`` are the names of the drafters in order of preference, ``branching``
        those of them that draft trees where the budget has room for them.
        """
        self.knowledge = knowledge
        self._bucket = min(knowledge.costs)
        self.costs = knowledge.costs[self._bucket]
        """Those of the bucket that the last plan was for."""
        self._sources = tuple(sources)
        self._branching = dict(branching or {})
        self._k_max = k_max
        self._kinds: dict[int, str] = {}
        """Kind of sampling by sequence."""
        self._round = 0
        self._curve: Curve = np.ones(1)
        self._stakes = LossBudget()
        self._looks = Looks()
        self._lengths: dict[int, int] = {}
        """Tokens known by sequence, at the last plan."""
        self._trying: set[Key] = set()
        """Who drafts in this round though it does not seem to pay."""
        self._idle = _QUIET
        """Rounds since the last draft."""
        self.speculation = Speculation("on")

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Forget the old curves: these, by bucket of context length, were measured just now."""
        self.knowledge.costs.clear()
        self.knowledge.costs.update(curves)
        self._bucket = min(curves)
        self.costs = curves[self._bucket]
        self._curve = np.ones(1)

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether a drafter that costs may come to draft: then it reads the prompt as the target
        does, and a look during the reply costs next to nothing.
        """
        expected = False
        self._read_curve(bucket_of(state.length), 1)
        for source in self._sources:
            cost = self.costs.draft(source) / self.costs.verify(1)
            survival = self.knowledge.acceptance.get((source, state.sampling), AcceptanceEstimate())
            if cost >= _CHEAP and most_gain(self._curve, cost) > _MARGIN:
                expected = expected or not _hopeless(survival, self._curve, cost)
            self._looks.has_read(state.seq, source, state.length if expected else 0)
        return expected

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """Who may draft, and the pace that tells them how far."""
        self._round += 1
        self._read_curve(bucket_of(max(s.length for s in states)), len(states))
        plans: dict[str, DraftPlan] = {}
        self._lengths = {s.seq: s.length for s in states}
        self._trying.clear()
        for state in states:
            self._kinds[state.seq] = state.sampling
            if state.emitted == 0:
                self._stakes.new_reply()
                self._looks.new_reply(self._round)
                for source in self._sources:
                    key = source, state.sampling
                    self.knowledge.acceptance.setdefault(key, AcceptanceEstimate()).new_text()
            if state.sampling not in plans:
                plans[state.sampling] = self._plan(state.sampling)
        if self._round % _PLAIN_EVERY == 0:
            return [PLAIN] * len(states)
        return [plans[state.sampling] for state in states]

    def _read_curve(self, bucket: int, batch: int) -> None:
        known = self.knowledge.costs
        if bucket not in known:  # start from where we are: a longer context changes little at once
            now = {n: self.costs.verify(n) for n in self.costs.curve()}
            known[bucket] = Costs(now, self.costs.drafts())
        if bucket != self._bucket or len(self._curve) == 1 or self._round % _CURVE_EVERY == 1:
            self._bucket, self.costs = bucket, known[bucket]
            seconds = [self.costs.verify(batch * (k + 1)) for k in range(self._k_max + 1)]
            self._curve = np.array(seconds) / seconds[0]

    def _plan(self, kind: str) -> DraftPlan:
        steps: list[DraftStep] = []
        drafting, reason = self._idle < _QUIET, "nothing to draft from yet"
        instead = 1.0
        for source in reversed(self._sources):
            key = source, kind
            survival = self.knowledge.acceptance.setdefault(key, AcceptanceEstimate())
            cost = self.costs.draft(source) / self.costs.verify(1)
            if self._breadth(key) < self._branching.get(source, Branching()).least:
                reason = "checking costs too much here: several guesses must be checked at once"
                continue
            worth = Gain(survival, self._affordable(key, self._curve, cost), cost)
            if cost < _CHEAP or worth.gain() > _MARGIN:
                self._looks.drafts(key)
                # Where nothing is affordable the pace refuses, but what it refused is judged.
                budget = self._budget(key, max(1, len(worth.curve) - 1))
                steps.insert(0, DraftStep(source, budget, Pace(worth, instead)))
                if cost >= _CHEAP:
                    instead = max(instead, worth.rate())
                    drafting = True
            else:
                reason = self._why_parked(survival, cost)
                better = 1 + _HOPE * (self._curve - 1)
                hopeful = Gain(survival, self._affordable(key, better, cost), cost)
                if hopeful.gain() > _MARGIN and self._looks.may_try(key, self._round):
                    budget = self._budget(key, len(hopeful.curve) - 1)
                    steps.insert(0, DraftStep(source, budget, Pace(hopeful, 1.0)))
                    self._trying.add(key)
                    continue
                useless = most_gain(better, cost) <= _MARGIN
                if not useless and self._looks.due(key, self._round, self._lengths, cost):
                    steps.append(DraftStep(source, Budget(0, 0, 0), probe=True))
                    if _hopeless(survival, self._curve, cost):
                        self._looks.seldom(key, self._round)
        self.speculation = Speculation("on") if drafting else Speculation("parked", reason)
        return DraftPlan(tuple(steps))

    def _breadth(self, key: Key) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring."""
        branching = self._branching.get(key[0])
        if branching is None:
            return 1
        worth = _FREE
        if branching.least == 1:
            survival = self.knowledge.acceptance.get(key, AcceptanceEstimate())
            stands = survival.mean(survival.table())
            worth = _emitted(1 - branching.misses * (1 - stands)) / _emitted(stands)
        chain = self._curve[min(_SHALLOW, self._k_max)]
        paying = [
            b for b in _BREADTHS if self._curve[min(b * _SHALLOW, self._k_max)] <= worth * chain
        ]
        return max(paying, default=1)

    def _budget(self, key: Key, depth: int) -> Budget:
        breadth = self._breadth(key)
        if breadth == 1:
            return Budget.chain(depth)
        leaves = breadth * self._branching[key[0]].leaves
        return Budget(nodes=breadth * depth, depth=depth, leaves=leaves)

    def _affordable(self, key: Key, curve: Curve, cost: float) -> Curve:
        """``curve`` by depth, up to the deepest draft whose complete loss the stake would bear."""
        curve = curve[:: self._breadth(key)]
        loss = curve - 1 + np.arange(len(curve)) * cost
        longest = int(np.flatnonzero(loss[1:] <= self._stakes.of(key)).max(initial=-1)) + 1
        return curve[: longest + 1]

    def _why_parked(self, survival: AcceptanceEstimate, cost: float) -> str:
        if most_gain(self._curve, cost) <= _MARGIN:
            four = self._curve[min(3, self._k_max)]
            return (
                f"checking costs too much here: checking 4 tokens takes {four:.1f} times as long "
                f"as one, and drafting one takes {cost:.0%} of that time"
            )
        if survival.evidence < 1:
            return "measuring the draft first"
        accepted = survival.stood.sum() / survival.evidence
        return f"plain decoding is faster here: {accepted:.0%} of drafted tokens accepted"

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Times by width, survival by confidence, stakes by what was won."""
        if not outcomes:
            return
        width = sum(1 + o.proposed for o in outcomes)
        drafting = sum(o.draft_s for o in outcomes)
        self.costs.passed(width, max(o.round_s for o in outcomes) - drafting)
        self._idle = 0 if width > len(outcomes) else self._idle + 1
        for o in outcomes:
            if o.considered:
                self.costs.drafted(o.source, o.considered, o.draft_s)
                self._looks.has_read(o.seq, o.source, self._lengths.get(o.seq, 0))
            elif o.draft_s > 0:
                cost = o.draft_s / self.costs.verify(1)
                self._looks.looked(o.seq, o.source, self._lengths.get(o.seq, 0), cost)
            self._settle(o)
        self._looks.passed()
        drafted = {o.source for o in outcomes if o.proposed}
        for e in evidence:
            key = e.source, self._kinds.get(e.seq, "")
            self.knowledge.acceptance.setdefault(key, AcceptanceEstimate()).learn(
                e.index, e.confidence, e.accepted
            )
            if e.source not in drafted:
                self._stakes.would_have(key, e.accepted)

    def _settle(self, o: Outcome) -> None:
        """Book what a round won against plain decoding, by the usual costs of its width: a hiccup
        of the machine is nobody's loss.
        """
        lasted = self._curve[min(o.proposed, len(self._curve) - 1)]
        lasted += o.draft_s / self.costs.verify(1)
        for source in self._sources:
            key = source, self._kinds.get(o.seq, "")
            won = 1 + o.accepted - float(lasted) if source == o.source else 0.0
            self._stakes.settle(key, 1 + o.accepted, won)
            if key in self._trying and source == o.source:
                self._looks.tried(key, self._round, o.proposed > 0, -won)


def _emitted(stands: float) -> float:
    """Tokens of a round with a draft of usual depth."""
    return sum(stands**i for i in range(_SHALLOW + 1))


def _hopeless(survival: AcceptanceEstimate, curve: Curve, cost: float) -> bool:
    """Whether even a text whose tokens are all as sure as any that came would hardly be worth
    drafting, with luck. Not whether the last text was any good: that tells little of the next one.
    """
    if not survival.evidence:
        return False
    pays = [most_gain(curve, cost, stands) > _MARGIN for stands in survival.hoped()]
    rare = survival.evidence >= _KNOWN and bool(survival.judged[pays].sum() <= _CAME)
    return rare or not any(pays)


__all__ = ["K_MAX", "Controller", "bucket_of"]
