"""The controller: draft as far as it pays on this machine, and never slower than plain decoding.

Before every round `decide` weighs what each drafter is expected to gain, by calibrated confidences
(`localspec.policy.acceptance`) and measured times (`localspec.policy.costs`), against what the
reply may lose (`localspec.policy.budgets`). Here is the state between rounds: what is believed of
each running text, the budgets, and the looks that keep beliefs true which nothing else would
correct. Leviathan et al. 2023, section 3.3, choose one K for all rounds from a mean acceptance and a
cost ratio; here each token is decided before it is drafted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.core.branching import Branching
from localspec.core.events import Speculation
from localspec.core.plan import (
    NO_LIMIT,
    PLAIN,
    DraftPlan,
    Evidence,
    Outcome,
    RequestState,
)
from localspec.core.settings_schema import MAX_K
from localspec.policy.acceptance import COPIED, AcceptanceEstimate, AcceptanceTuning
from localspec.policy.budgets import Looks, ReplyBudget, SessionBudget
from localspec.policy.costs import Costs
from localspec.policy.decide import BEHIND, Budgets, Decision, Option, decide
from localspec.policy.gain import DOUBT, MARGIN, Expected, prospect
from localspec.policy.prices import RECENT, Curve, PriceList, Prices, row_factors
from localspec.policy.reasons import Guesses, Seen, why_parked
from localspec.policy.storage import Knowledge

COPYING = AcceptanceTuning(prior=8.0, spread=0.5, expected=COPIED)
"""Acceptance of what is copied from the text."""
QUIET = 16
"""Rounds of a reply without a draft after which speculation is reported as parked."""
USUAL = 96.0
"""Tokens of a reply before any was seen."""
WEIGHT = 0.15
"""Weight of a new reply in that."""
JUDGED = 100.0
"""Judged tokens from which on a drafter is known."""
READING = 0.12
"""Share of a reply's time for which a drafter reads the prompt of which little is known."""
TRIED = 3
"""Most tokens of a draft that is to measure costs: a usual one shows how steep they are."""
LONGEST = 1024
"""Most missed tokens that a probe reads: a reply waits for them."""

ON = Speculation("on")

Key = tuple[str, str]
"""(Drafter, kind of sampling)."""


@dataclass(slots=True)
class Reply:
    """A running reply."""

    state: RequestState
    texts: dict[str, AcceptanceEstimate]
    """What drafters have shown in its text, by name."""
    budget: ReplyBudget = field(default_factory=ReplyBudget)
    frequency: float = 0.5
    """How often it drafts."""
    decision: Decision = Decision((), ())
    """That of the last round."""
    guesses: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(Predictions that were right, predictions in all) by drafter."""
    idle: int = QUIET
    """Rounds since the last draft, or as many as make it parked."""
    fruitless: int = 0
    """Rounds in a row in which a drafter that computes was asked and nothing was drafted."""
    considered: bool = False
    """Whether such a drafter computed anything in the last of them."""
    said: tuple[Decision, Speculation] | None = None
    """The last reason, and the decision that it was made of."""
    expected: dict[str, tuple[int, int, Expected]] = field(default_factory=dict)
    """(Version of the text's estimate, longest draft, what follows) by drafter."""

    def expect(self, source: str, lengths: int) -> Expected:
        """What drafts of up to so many tokens are expected to emit."""
        text = self.texts[source]
        known = self.expected.get(source)
        if known is not None and known[0] == text.version and known[1] == lengths:
            return known[2]
        found = Expected(text, lengths)
        self.expected[source] = text.version, lengths, found
        return found


class Controller:
    """The measured `Policy`: drafts where that is expected to be faster than plain decoding."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        *,
        free: Collection[str] = (),
        branching: Mapping[str, Branching] | None = None,
        k_max: int = MAX_K,
        pads: bool = False,
        read_shares: Mapping[str, float] | None = None,
    ) -> None:
        """``knowledge`` has costs for at least one bucket of context length and is updated;
        ``sources`` are the names of the drafters in order of preference, ``free`` those of them
        that copy from the text, ``branching`` those that draft trees where the budget has room.
        ``pads``: whether the target pads passes over one request to wider ones that are quicker.
        ``read_shares``: by drafter, the time for a token that it reads with others, as a share of
        that for a drafted one; where it is missing, drafters read as the target's passes do.
        """
        self.knowledge = knowledge
        self._sources, self._copies = tuple(sources), frozenset(free)
        self._branching = dict(branching or {})
        self._prices = PriceList(
            knowledge.costs, k_max, pads=pads, read_shares=read_shares or {}
        )
        self._session = SessionBudget()
        self._looks = Looks()
        self._replies: dict[int, Reply] = {}
        self._prompts: dict[int, tuple[int, bool]] = {}
        """Length of the prompt that is being read, and whether drafters read it too."""
        self._reads: dict[int, bool] = {}
        """Whether drafters were to read the text when that was decided last."""
        self._usual = USUAL
        """Tokens of a usual reply."""
        self._round = 0
        self._requests = 1
        self._last: int | None = None

    # -- reading -------------------------------------------------------------------------------

    @property
    def costs(self) -> Costs:
        """The costs for the context length of the last plan."""
        return self._prices.costs

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, by bucket of context length."""
        self._prices.replace(curves)

    @property
    def speculation(self) -> Speculation:
        """The state of the request that was planned last; on before any was."""
        return ON if self._last is None else self.speculation_of(self._last)

    def speculation_of(self, seq: int) -> Speculation:
        """On, parked or off, and why, for the request in a sequence, as of its last round."""
        reply = self._replies.get(seq)
        if reply is None or reply.idle < QUIET:
            return ON
        candidates = reply.decision.candidates
        if reply.fruitless < QUIET and any(c.decided == "asked" for c in candidates):
            return ON
        if reply.said is None or reply.said[0] is not reply.decision:
            reply.said = reply.decision, why_parked(candidates, self._seen(reply))
        return reply.said[1]

    def _seen(self, reply: Reply) -> Seen:
        """What a sentence about the reply needs besides its candidates."""
        guesses, reading = {}, {}
        for source, text in reply.texts.items():
            here = reply.guesses.get(source, (0, 0))
            guesses[source] = Guesses(*here, sum(text.verdicts), len(text.verdicts))
            if source not in self._copies:
                reading[source] = self._prices.reading(source, reply.state.unread, self._requests)
        return Seen(
            self._requests, guesses, reply.state.unread, self._reads.get(reply.state.seq), reading,
            reply.considered,
        )  # fmt: skip

    def drafter(self, key: Key) -> AcceptanceEstimate:
        """The drafter's acceptance under a kind of sampling, over all texts."""
        tuning = COPYING if key[0] in self._copies else AcceptanceTuning()
        estimate = self.knowledge.acceptance.setdefault(key, AcceptanceEstimate(tuning=tuning))
        estimate.tuning = tuning
        return estimate

    # -- prompts -------------------------------------------------------------------------------

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether a drafter that computes should read what it has not read: what it is expected to
        win in the rest of the reply is worth more than the time for reading, or it is looked at.
        """
        if not state.emitted and state.seq in self._prompts:
            length, reads = self._prompts[state.seq]
            if length == state.length:  # the next part of the same prompt
                return reads
        self._prices.read(state.length, state.batch, self._round)
        reads = False
        for source in self._sources:
            if source not in self._copies and state.may_use(source):
                reads = self._worth_reading(state, source) or reads
        self._reads[state.seq] = reads
        if not state.emitted:
            self._prompts[state.seq] = state.length, reads
        return reads

    def _worth_reading(self, state: RequestState, source: str) -> bool:
        key, n = (source, state.sampling), state.batch
        factor = row_factors([0.5] * n)[0]
        prices = self._prices.of(source, copies=False, factor=factor)
        price = self._prices.reading(source, state.unread, n)
        tokens = min(float(state.left), self._usual)
        passes = self.costs.verify(max(1, state.unread)) / self.costs.verify(1)
        whole = passes + state.emitted + tokens
        drafter = self.drafter(key)
        if prices.most_gain > MARGIN:
            known = drafter.evidence >= JUDGED
            limit = math.inf if known else READING * tokens / n
            each = self._each(state, source, prices, drafter)
            if price <= min(tokens * each, limit):
                return True
        if state.emitted:
            return False
        best = self._prices.at_best(source, prices)
        look = self._looks.at(("prompt", *key), 1, 8, 0)
        look.since -= 1  # its rounds are prompts
        worth = tokens * look.chance * prospect(drafter, best, (DOUBT,))
        if look.due(0) and price <= min(self._session.left, 0.01 * whole, worth):
            look.look(0)
            self._session.spend(price)
            return True
        return False

    def _each(
        self, state: RequestState, source: str, prices: Prices, drafter: AcceptanceEstimate
    ) -> float:
        """Tokens that a drafter is expected to win for each one of the text."""
        reply = self._replies.get(state.seq)
        if state.emitted and reply is not None and source in reply.texts:
            gain = reply.expect(source, len(prices.costs)).gain(prices)
            if gain <= MARGIN:
                return 0.0  # a probe reads too, and shows something
            if reply.guesses.get(source, (0, 0))[1] >= 8:
                return gain / (1 + gain)
        return prospect(drafter, prices, (0.0, 1.0))

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        self._round += 1
        self._requests = len(states)
        prices = self._prices
        prices.read(max(s.length for s in states), len(states), self._round)
        own = [s for s in states if not s.other_policy]
        for state in own:
            reply = self._replies.get(state.seq)
            if reply is None or state.emitted == 0 or state.seq in self._prompts:
                self._begin(state)
            else:
                reply.state = state
        replies = [self._replies[s.seq] for s in own]
        factors = row_factors([r.frequency for r in replies]) if len(own) > 1 else [1.0]
        found = iter(
            [self._plan(r, f, replies) for r, f in zip(replies, factors, strict=True)]
        )
        plans = [PLAIN if s.other_policy else next(found) for s in states]
        if self._looks.at(self._plain_key(), 8, 128, self._round).due(self._round):
            return [PLAIN] * len(states)
        return plans

    def _plain_key(self) -> tuple[object, ...]:
        return "plain", self._prices.bucket, self._requests

    def _begin(self, state: RequestState) -> None:
        """A reply begins, and the last one of its sequence has ended."""
        seq = state.seq
        last = self._replies.get(seq)
        if last is not None:
            ended = last.state
            if ended.left > 40 or ended.emitted >= self._usual:  # by itself, not by its limit
                self._usual += WEIGHT * (ended.emitted - self._usual)
        self._prompts.pop(seq, None)
        texts = {}
        for source in filter(state.may_use, self._sources):
            key = source, state.sampling
            texts[source] = self.knowledge.acceptance[key] = self.drafter(key).new_text()
            self._probe_look(key).begin(self._round)
        self._replies[seq] = Reply(state, texts)

    def _probe_look(self, key: Key):  # type: ignore[no-untyped-def]
        return self._looks.at(("probe", *key), 2, 256, self._round)

    def _trial_look(self, key: Key):  # type: ignore[no-untyped-def]
        return self._looks.at(("trial", *key), 16, 256, self._round)

    def _plan(self, reply: Reply, factor: float, replies: Sequence[Reply]) -> DraftPlan:
        others = [r.budget.left for r in replies if r is not reply]
        budgets = Budgets(
            reply.budget.left,
            factor * max(0.0, min(others)) if others else math.inf,
            self._session.left,
        )
        options = [self._option(reply, source, factor) for source in reply.texts]
        decision = reply.decision = decide(options, reply.state.unread, budgets)
        self._last = reply.state.seq
        for c in decision.candidates:
            if c.decided == "asked":
                key = c.source, reply.state.sampling
                self._probe_look(key).used(self._round)
                self._trial_look(key).used(self._round)
            elif c.probes:
                self._probe_look((c.source, reply.state.sampling)).look(self._round)
            elif c.decided != "trial" and c.option.at_best is not None:
                self._trial_look((c.source, reply.state.sampling)).later(self._round)
        if self._requests > 1:
            return DraftPlan(decision.steps)
        if self._round % 32:
            return DraftPlan(decision.steps, self._prices.widths)
        plan, untried = DraftPlan(decision.steps), self._prices.untried()
        return plan.within(untried - 1, NO_LIMIT) if untried else plan

    def _option(self, reply: Reply, source: str, factor: float) -> Option:
        prices, copies, now = self._prices, source in self._copies, self._round
        key = source, reply.state.sampling
        breadth = 1
        if source in self._branching:
            breadth = self._breadth(source, reply.texts[source], prices.unpadded)
        price = prices.of(source, copies=copies, factor=factor, breadth=max(1, breadth))
        lengths = len(price.costs)
        answer = prices.costs.draft(source) / prices.costs.verify(1) if copies else 0.0
        at_best = None
        if not copies or prices.unconfirmed:
            look = self._trial_look(key)
            soon = 12 if prices.doubtful and look.made == 0 else 0
            if now + soon - look.since >= look.wait and self._session.left >= 0.5:
                at_best = prices.at_best(source, price)
                at_best = at_best.upto(TRIED)
        probe = math.inf
        if not copies and breadth and self._probe_look(key).due(now):
            probe = self._probe_price(reply, key, price)
        return Option(
            source,
            lambda: reply.expect(source, lengths),
            price,
            copies,
            answer,
            breadth,
            self._branching.get(source, Branching()),
            at_best,
            probe,
        )

    def _probe_price(self, reply: Reply, key: Key, prices: Prices) -> float:
        """The price of a probe that is worth it; else infinite."""
        source, state = key[0], reply.state
        best = self._prices.at_best(source, prices)
        if state.unread > LONGEST or best.most_gain <= MARGIN:
            return math.inf
        price = self._prices.reading(source, state.unread, self._requests)
        tokens = min(float(state.left), self._usual)
        look = self._probe_look(key)
        worth = tokens * look.chance * prospect(self.drafter(key), best, (DOUBT,))
        if price <= worth:
            return price
        look.later(self._round)
        return math.inf

    def _breadth(self, source: str, text: AcceptanceEstimate, curve: Curve) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring."""
        branching, deepest = self._branching[source], len(curve) - 1
        longer = 1.2
        if branching.least == 1:
            mean = text.mean(text.table())
            more = 1 - branching.misses * (1 - mean)
            longer = sum(more**i for i in range(5)) / sum(mean**i for i in range(5))
        limit = longer * curve[min(4, deepest)]
        paying = [b for b in (2, 3, 4) if curve[min(b * 4, deepest)] <= limit]
        found = max(paying, default=1)
        return found if found >= branching.least else 0

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and budgets by what was won and lost."""
        if not outcomes:
            return
        n = len(outcomes)
        self._learn_pass(outcomes)
        asking = sum(self._learn_draft(o) for o in outcomes if not o.other_policy) / n
        self._session.save(n)
        widest = max(o.proposed for o in outcomes)
        curve = self._prices.curve
        longer = float(curve[min(widest, len(curve) - 1)]) - 1
        for o in outcomes:
            reply = self._replies.get(o.seq)
            if o.other_policy or reply is None:
                continue
            drafted = o.proposed > 0
            gain = o.accepted - asking - longer
            reply.budget.settle(1 + o.accepted + o.forced, gain)
            reply.frequency += RECENT * (drafted - reply.frequency)
            tried = self._settle_trial(o, reply, -gain)
            if o.forced or (drafted and not tried):
                reply.idle = reply.fruitless = 0
            else:
                reply.idle += 1
                if any(c.decided == "asked" for c in reply.decision.candidates):
                    reply.fruitless += 1
                    reply.considered = o.considered > 0
        for e in evidence:
            reply = self._replies.get(e.seq)
            if reply is not None and e.source in reply.texts:
                reply.texts[e.source].learn(e.index, e.confidence, e.accepted)
                right, judged = reply.guesses.get(e.source, (0, 0))
                reply.guesses[e.source] = right + e.accepted, judged + 1

    def _learn_pass(self, outcomes: Sequence[Outcome]) -> None:
        """The seconds of the pass. Tokens that a grammar forces count as plain, or where many
        requests have some in every round, none would ever be plain and nothing drafted.
        """
        width = max(o.width for o in outcomes)
        seconds = max(o.round_s for o in outcomes) - sum(o.drafting_s for o in outcomes)
        self.costs.passed(len(outcomes) * width, seconds)
        if all(o.other_policy or not (o.proposed or o.padding) for o in outcomes):
            look = self._looks.at(self._plain_key(), 8, 128, self._round)
            look.since = self._round
            if look.made < 3:
                look.made += 1
            else:
                look.wait = look.last

    def _settle_trial(self, o: Outcome, reply: Reply, cost: float) -> bool:
        """Whether a trial was made; the session has paid for it."""
        for c in reply.decision.candidates:
            if c.source == o.source and c.decided == "trial":
                doubtful = self._prices.doubtful
                self._session.spend(max(0.0, min(cost, 0.5) if doubtful else cost))
                if o.proposed:
                    look = self._trial_look((o.source, reply.state.sampling))
                    look.look(self._round)
                    if doubtful:
                        look.wait = look.first
                return True
        return False

    def _learn_draft(self, o: Outcome) -> float:
        """Learn what drafting took; what it was expected to take, in plain tokens of all requests:
        a stall is not charged to the drafter.
        """
        costs, n = self.costs, self._requests
        plain = n / costs.verify(n)
        unread = self._replies[o.seq].state.unread if o.seq in self._replies else 0
        spent = 0.0
        if o.probed is not None:
            spent = o.probed.seconds * plain
            costs.bounded(o.probed.source, o.probed.seconds)
            price = self._prices.reading(o.probed.source, unread, n)
            self._prices.has_read(o.probed.source, spent / price)
            self._session.spend(spent)
        if o.source in self._copies:
            if o.draft_s > 0:
                known = costs.draft(o.source) > 0  # the first one may have indexed a long text
                costs.answered(o.source, o.draft_s if known else min(o.draft_s, 1e-4))
            return spent + o.draft_s * plain
        if o.considered:
            kept_up = unread <= 2
            each = self._prices.token(o.source, n)
            reading = 0.0 if kept_up else self._prices.reading(o.source, unread, n) - each
            spent += o.considered * each + reading
            if kept_up:
                costs.drafted(o.source, o.considered, o.draft_s)
            else:
                costs.bounded(o.source, o.draft_s / o.considered)
        return spent


__all__ = ["Controller", "Reply"]
