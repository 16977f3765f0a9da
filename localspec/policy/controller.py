"""The controller: draft as far as it pays on this machine, and never slower than plain decoding.

Before every round `decide` weighs what each drafter is expected to gain against what the reply may
lose; docs/controller.md derives it. Here is what goes on between rounds: replies begin, plans are
made, and what came of them is learnt. Leviathan et al. 2023, section 3.3, choose one K for all
rounds from a mean acceptance and a cost ratio; here each token is decided before it is drafted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from localspec.core.drafter_registry import Branching
from localspec.core.events import Speculation
from localspec.core.plan import NO_LIMIT, PLAIN, DraftPlan, Evidence, Outcome, RequestState
from localspec.core.settings_schema import MAX_K
from localspec.policy.agreement import Agreement
from localspec.policy.beliefs import TRIAL, Beliefs, Reply
from localspec.policy.budgets import LOOKS, Charge, Look, ReplyBudget
from localspec.policy.costs import Costs
from localspec.policy.decide import Belief, Decided, decide
from localspec.policy.gain import Budgets
from localspec.policy.neighbours import Neighbours
from localspec.policy.prices import RECENT, UNSEEN, PriceList, row_factors
from localspec.policy.reasons import ON
from localspec.policy.storage import Knowledge

UNPADDED = 32
"""Rounds from one whose pass is not padded to the next, so that the cost of widths that are padded
stays measured."""
WIDE = (4, 4, 4, 4)
"""Rows of a pass that shows what a usual draft's takes, by those that it needs."""
KEPT_UP = 2
"""Tokens that a drafter reads at most in its first pass of a draft, where it drafts every round."""


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
        self._prices = PriceList(knowledge.costs, k_max, read_shares or {}, pads=pads)
        self._beliefs = Beliefs(knowledge, sources, free, branching or {}, self._prices)
        self._replies: dict[int, Reply] = {}
        self._agreement = Agreement(self._beliefs)
        self._neighbours = Neighbours()
        self._prompts: dict[int, tuple[RequestState, bool]] = {}
        """The request whose prompt is being read, and whether drafters read it too."""
        self._wide: dict[int, Look] = {}
        """When passes over several tokens are looked at without a draft, by requests."""
        self._plain = Look(1, 0, 1)
        """When a pass over one token is looked at although drafts pay."""
        self._charges: dict[str, Charge] = {}
        """By drafter: what is charged of probes, or of answers."""
        self._round = 0
        self._requests = 1

    @property
    def costs(self) -> Costs:
        """The costs for the context length of the last plan."""
        return self._prices.costs

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, by bucket of context length."""
        self._prices.replace(curves)

    def speculation_of(self, seq: int) -> Speculation:
        """On, parked or off, and why, for the request in a sequence, as of its last round."""
        reply = self._replies.get(seq)
        return ON if reply is None else reply.status.say(reply.decision)

    def decide_reading(self, state: RequestState) -> bool:
        """Decide whether drafters that compute read what they have not read; see `Beliefs`."""
        seq, now = state.seq, self._round
        known, reads = self._prompts.get(seq, (None, False))
        if known == replace(state, unread=0, batch=1, room=0):  # the next part of the same prompt
            return reads
        self._prices.read(state.length, state.batch, now)
        reply = self._replies.get(seq) if state.emitted and seq not in self._prompts else None
        reads = False
        for source in self._beliefs.sources:
            if source not in self._beliefs.copies and state.may_use(source):
                reads = self._beliefs.pay_for_reading(state, source, reply, now) or reads
        if not state.emitted:
            self._prompts[seq] = replace(state, unread=0, batch=1, room=0), reads
        return reads

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        self._round += 1
        self._requests = len(states)
        self._prices.read(max(s.length for s in states), len(states), self._round)
        own = [self._running(s) for s in states if not s.other_policy]
        neighbours = self._neighbours.of(states, self._beliefs.rejected)
        accounts = [*(reply.budget for reply in own), *neighbours]
        frequencies = [*(reply.chances for reply in own), *(0.0 for _ in neighbours)]
        factors = row_factors(frequencies)[: len(own)]
        plain = self._try_plain_pass()
        wide = not plain and self._try_wide_pass()
        beliefs = [self._beliefs.of(r, f, self._round) for r, f in zip(own, factors, strict=True)]
        if len(states) > 1:
            beliefs = self._agreement.of(own, beliefs, neighbours)
        each = zip(own, beliefs, factors, strict=True)
        plans = iter([self._plan(reply, b, factor, accounts) for reply, b, factor in each])
        found = [PLAIN if s.other_policy else next(plans) for s in states]
        if plain:
            return [DraftPlan(tuple(s for s in plan.steps if s.probe)) for plan in found]
        return [replace(plan, widths=WIDE) for plan in found] if wide else found

    def _running(self, state: RequestState) -> Reply:
        """The reply of a request, which begins with the first round that is planned."""
        seq, reply = state.seq, self._replies.get(state.seq)
        begins = self._prompts.pop(seq, None) is not None or not state.emitted
        if reply is not None:
            if not begins:
                reply.state = state
                return reply
            self._beliefs.ended(reply.state)
        reply = self._replies[seq] = self._beliefs.begin(state, self._round)
        reply.budget = self._neighbours.account(state)
        return reply

    def _plan(
        self,
        reply: Reply,
        beliefs: Sequence[Belief],
        factor: float,
        accounts: Sequence[ReplyBudget],
    ) -> DraftPlan:
        """The plan of one reply; ``accounts`` are those of all requests."""
        left = (a.left_for_copies for a in accounts if a is not reply.budget)
        others = min(left, default=math.inf)
        spare = reply.budget.spare * self._requests  # its price is what all of them wait
        looks = min(spare, self._beliefs.session.left + LOOKS)
        own, answers = reply.budget.left, reply.budget.left_for_answers
        budgets = Budgets(own, factor * max(0.0, others), looks, answers)
        reply.decision = decide(beliefs, reply.state.unread, budgets)
        reply.status.requests, reply.status.unread = self._requests, reply.state.unread
        self._beliefs.planned(reply, self._round)
        pads = self._requests == 1 and self._round % UNPADDED > 0
        widths = self._prices.widths if pads else ()
        return DraftPlan(reply.decision.steps, widths)

    def _try_plain_pass(self) -> bool:
        """Whether nothing is drafted in this round, to see what a plain pass takes: where one over
        several tokens was quicker than that is believed to be, and every round has drafted since.
        """
        look = self._plain
        if not self.costs.stale:
            look.acted_on(self._round)
        elif self._requests == 1 and look.is_due(self._round):
            look.done(self._round)
            return True
        return False

    def _try_wide_pass(self) -> bool:
        """Whether this pass has four rows at least, to see what these cost: where they are believed
        to cost so much more than was measured that no draft may show it, and the session can pay.
        """
        new = Look(TRIAL, self._round, TRIAL, longest=NO_LIMIT)
        look = self._wide.setdefault(self._requests, new)
        session = self._beliefs.session
        if self._prices.measured_share >= UNSEEN or len(self._prices.unpadded) < len(WIDE):
            look.settled(self._round)
            return False
        price = (float(self._prices.unpadded[len(WIDE) - 1]) - 1) * self._requests
        if not look.is_due(self._round) or price > look.chance * session.left:
            return False
        session.spend(price)
        look.done(self._round)
        return True

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and budgets by what was won and lost."""
        if not outcomes:
            return
        n = len(outcomes)
        own = [o for o in outcomes if not o.other_policy]
        # All requests have as many rows as the widest.
        seconds = max(o.round_s for o in outcomes) - sum(o.drafting_s for o in outcomes)
        self.costs.record_pass(n * max(o.width for o in outcomes), seconds)
        answers = sum(map(self._learn_answer, own)) / n
        asking, drafting = sum(map(self._learn_asking, own)) / n, self._learn_drafts(outcomes)
        self._beliefs.session.save(n)
        right = {e.seq for e in evidence if e.accepted}
        # At the expected cost of the pass: a stall is not charged to the drafter. Nor do drafts of
        # other policies count, which made it wider.
        computed = [o for o in own if n > 1 and o.source not in self._beliefs.copies]
        longer, trial = answers + asking + drafting + self._longer(own), False
        by_all = drafting + self._longer(computed) if computed else 0.0
        shared = sum(o.accepted for o in computed) / max(1, len(own)) - by_all
        for o in outcomes:
            reply = self._replies.get(o.seq)
            if o.other_policy:
                self._neighbours.settle(o.seq, -longer, -by_all, answers)
            if o.other_policy or reply is None:
                continue
            company = (o.accepted if o in computed else 0) - by_all
            emitted, gain = 1 + o.accepted + o.forced, o.accepted - longer
            reply.budget.settle(emitted, gain, company, shared, answers)
            could = o.proposed > 0 or (n > 1 and o.seq in right)
            reply.chances += RECENT * (could - reply.chances)
            tried = self._learn_trial(o, reply)
            trial = trial or tried
            reply.status.learn(o, reply.decision, tried=tried)
        if trial:  # the session pays, for all that waited
            cost = max(0.0, n * longer - sum(o.accepted for o in own))
            self._beliefs.session.spend(min(cost, n * LOOKS) if self._prices.doubtful else cost)
        for e in evidence:
            reply = self._replies.get(e.seq)
            if reply is not None and e.source in reply.status.texts:
                reply.status.texts[e.source].learn(e.confidence, e.accepted)

    def _longer(self, outcomes: Sequence[Outcome]) -> float:
        """What their drafts are expected to have lengthened the pass by, in plain passes."""
        curve, widest = self._prices.curve, max((o.proposed for o in outcomes), default=0)
        return float(curve[min(widest, len(curve) - 1)]) - 1

    def _learn_trial(self, o: Outcome, reply: Reply) -> bool:
        """Whether the draft was a trial. One of all requests is one look: they share its price."""
        decided = {c.belief.source: c.decided for c in reply.decision.candidates}
        if decided.get(o.source) is not Decided.TRIAL:
            return False
        look = self._beliefs.looks((o.source, reply.state.sampling), self._round)[1]
        if look.since != self._round or not look.open:
            look.done(self._round)
        if self._prices.doubtful:
            look.wait = look.first
        return True

    def _learn_asking(self, o: Outcome) -> float:
        """Learn what a request's drafters took before they drafted: a probe, what they had not
        read; what was expected of it, in plain tokens of all requests.
        """
        costs, n, source = self.costs, self._requests, o.source
        plain = n / costs.pass_seconds(n)
        reply = self._replies.get(o.seq)
        unread, decided = (reply.state.unread, reply.decision.candidates) if reply else (0, ())
        spent = 0.0
        if o.probed is not None:
            if o.probed.seconds > 0:  # else there was nothing that could be read
                costs.record_draft_at_most(o.probed.source, o.probed.seconds)
            probes = [c.belief.reads for c in decided if c.belief.source == o.probed.source]
            price = self._prices.reading(o.probed.source, min([unread, *probes]))
            spent = self._charge(o.probed.source, o.probed.seconds * plain, price)
            self._beliefs.session.spend(spent)
            if reply is not None:
                reply.budget.spent += spent / n
        if o.considered and unread > KEPT_UP and source not in self._beliefs.copies:
            spent += self._prices.reading(source, unread) - n * self._prices.token(source)
        return spent

    def _learn_answer(self, o: Outcome) -> float:
        """Learn what a look for a match took; what is charged of it, in plain tokens of all."""
        costs, n, source = self.costs, self._requests, o.source
        if source not in self._beliefs.copies:
            return 0.0
        reply = self._replies.get(o.seq)
        decided = reply.decision.candidates if reply else ()
        looks = any(c.looks for c in decided if c.belief.source == source)
        if o.draft_s > 0:
            costs.record_answer(source, o.draft_s, looks=looks)
        plain = n / costs.pass_seconds(n)
        asked = self._charge(source, o.draft_s * plain, costs.token_seconds(source) * plain)
        if looks:
            self._beliefs.session.spend(asked)
        return asked

    def _charge(self, source: str, took: float, believed: float) -> float:
        """What is charged of what a drafter took; a stall of the machine is not."""
        charge = self._charges.setdefault(source, Charge())
        return charge.of(took, believed, self._round)

    def _learn_drafts(self, outcomes: Sequence[Outcome]) -> float:
        """Learn what the passes of drafters took, which requests have in common; what was expected
        of those for our drafts, in plain tokens of each.
        """
        spent = 0.0
        probed = {o.probed.source for o in outcomes if o.probed is not None}
        drafts = [o for o in outcomes if o.considered and o.source not in self._beliefs.copies]
        for source in {o.source for o in drafts if not o.other_policy}:
            of_all = [o for o in drafts if o.source == source]
            own = [o for o in of_all if not o.other_policy]
            passes, one = self._drafter_passes(of_all), self.costs.token_seconds(source)
            spent += self._drafter_passes(own) * self._prices.token(source)
            unread = [self._replies[o.seq].state.unread for o in own if o.seq in self._replies]
            behind = [self._prices.reading_passes(source, n) - 1 for n in unread if n > KEPT_UP]
            seconds, read = sum(o.draft_s for o in of_all), one * sum(behind)
            # Among several one is behind nearly always, and a belief that only bounds correct would
            # never rise again. So what reading takes by that belief, if any, is subtracted, unless
            # most of the time would be: then little is known of the rest.
            known = not behind or (len(own) > 1 and one > 0 and read < seconds / 2)
            if known and source not in probed:
                self.costs.record_draft(source, passes, seconds - read)
            else:
                self.costs.record_draft_at_most(source, seconds / passes)
        return spent

    def _drafter_passes(self, drafts: Sequence[Outcome]) -> float:
        """Passes of a drafter over one row that take as long as those of these drafts: one for each
        place, over the drafts that reach it.
        """
        places = range(max(o.considered for o in drafts))
        return self._prices.drafter_passes([sum(o.considered > i for o in drafts) for i in places])
