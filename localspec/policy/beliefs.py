"""What is believed of each drafter for a request, and what it would be worth to find out more."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from localspec.core.drafter_registry import Branching
from localspec.core.plan import NO_LIMIT, RequestState
from localspec.policy.acceptance import COMPUTES, COPIES, AcceptanceEstimate
from localspec.policy.budgets import AT_FIRST, Look, ReplyBudget, SessionBudget
from localspec.policy.company import Member
from localspec.policy.decide import BEHIND, UNDECIDED, Belief, Decided, Decision
from localspec.policy.gain import Expected, for_each_token, prospect
from localspec.policy.prices import DOUBT, RECENT, PriceList, Prices
from localspec.policy.reasons import Status
from localspec.policy.storage import Knowledge

USUAL_LENGTH = 96.0
"""Tokens of a reply before any was seen."""
PROBE, TRIAL = 2, 24
"""Rounds until a drafter's first probe and trial. A reply has so many tokens before a trial, too:
one that fails slows a reply of twenty by a tenth."""

CHAIN = Branching()
Key = tuple[str, str]
"""(Drafter, kind of sampling)."""


@dataclass(slots=True)
class Reply:
    """A running reply."""

    state: RequestState
    status: Status
    """With what drafters have shown in its text."""
    budget: ReplyBudget = field(default_factory=ReplyBudget)
    chances: float = 0.5
    """How often it drafts or, among others, could have with success: requests that pay only
    together would otherwise each be charged for the whole pass."""
    decision: Decision = UNDECIDED
    """The decision of the last round."""
    _expected: dict[str, tuple[int, Expected]] = field(default_factory=dict)
    """(Tokens that were compared, what follows from them) by drafter."""

    @property
    def can_draft(self) -> bool:
        """Whether drafters that compute have read its text."""
        return self.state.unread <= BEHIND

    def member(self, belief: Belief | None) -> Member:
        """The request as one of those that draft together, or wait for it."""
        can = belief is not None and self.can_draft
        expected = belief.expected() if can and belief is not None else None
        room = min(self.state.left - 1, self.state.room)
        return Member(expected, self.budget.bears, room)

    def drafting(self, source: str) -> int:
        """Tokens that all requests draft with that drafter now, whether this one can or not."""
        of_it = (c.belief.agreed for c in self.decision.candidates if c.belief.source == source)
        return next((a.depth for a in of_it if a is not None and not a.tried), 0)

    def expected(self, source: str, lengths: int) -> Expected:
        """What drafts of up to so many tokens are expected to emit."""
        text, known = self.status.texts[source], self._expected.get(source)
        if known is None or known[0] != text.compared or known[1].lengths != lengths:
            known = self._expected[source] = text.compared, Expected(text, lengths)
        return known[1]


class Beliefs:
    """All drafters of a session: what is believed of them, and when to look again."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        copies: Collection[str],
        branching: Mapping[str, Branching],
        prices: PriceList,
    ) -> None:
        """See `Controller`."""
        self.sources, self.copies = tuple(sources), frozenset(copies)
        self._knowledge, self._branching = knowledge, dict(branching)
        self.prices = prices
        self.session = SessionBudget()
        self._looks: dict[Key, tuple[Look, Look]] = {}
        self._priced: dict[str, Look] = {}
        """When the cost of a drafter's tokens is looked at."""
        self._answered: dict[str, Look] = {}
        """When a drafter that copies is asked although its answer is believed to cost too much."""
        self.usual = USUAL_LENGTH
        """Tokens of a usual reply."""

    def drafter(self, key: Key) -> AcceptanceEstimate:
        """A drafter's acceptance under a kind of sampling, over all texts."""
        estimate = self._knowledge.acceptance.setdefault(key, AcceptanceEstimate())
        estimate.kind = COPIES if key[0] in self.copies else COMPUTES
        return estimate

    def begin(self, state: RequestState, now: int) -> Reply:
        """A reply begins; what is known of its drafters describes other texts."""
        texts = {}
        for source in filter(state.may_use, self.sources):
            key = source, state.sampling
            texts[source] = self._knowledge.acceptance[key] = self.drafter(key).new_text()
            self.looks(key, now)[0].restart(now)
        return Reply(state, Status(texts))

    def ended(self, last: RequestState) -> None:
        """A reply has ended, of which this round was the last: by itself, or by its limit."""
        if last.left > last.emitted or last.emitted >= self.usual:
            self.usual += RECENT * (last.emitted - self.usual)

    def left(self, state: RequestState) -> float:
        """Tokens that are still to come: replies of any length are as likely to go on, and one that
        is longer than usual as likely to double.
        """
        return min(float(state.left), max(self.usual, float(state.emitted)))

    def looks(self, key: Key, now: int) -> tuple[Look, Look]:
        """When a drafter that is not asked is probed, and when its costs are tried."""
        if key not in self._looks:
            self._looks[key] = Look(PROBE, now, PROBE), Look(TRIAL, now, TRIAL)
        return self._looks[key]

    def planned(self, reply: Reply, now: int) -> None:
        """What is looked at in this round, and what is acted on."""
        for c in reply.decision.candidates:
            probe, trial = self.looks((c.belief.source, reply.state.sampling), now)
            price = self._priced.get(c.belief.source)
            if price is not None and c.decided is Decided.ASKED:
                price.settled(now)
            elif price is not None and c.probes:
                price.done(now)
            answer = self._answered.get(c.belief.source)
            if answer is not None and c.looks:
                answer.done(now)
            elif answer is not None and c.decided in {Decided.COPIES, Decided.TRIAL}:
                answer.settled(now)
            if c.decided is Decided.ASKED:
                probe.acted_on(now)
                trial.settled(now)
            elif c.probes and c.belief.reads > 1:
                probe.done(now)
            if c.belief.at_best is not None and c.decided is not Decided.TRIAL:
                trial.postpone(now)

    def of(self, reply: Reply, factor: float, now: int) -> list[Belief]:
        """All drafters of a reply in the next round; it is charged ``factor`` of the extra time."""
        found = [self.belief(reply, source, factor, now) for source in reply.status.texts]
        own = [belief.prices.rejected for belief in found if len(belief.prices.costs)]
        reply.budget.rejected = min(1.0, max(own)) if own else self.rejected
        return found

    @property
    def rejected(self) -> float:
        """What a rejected draft of one token loses a request that none may draft for."""
        of_all = (self.prices.of(s, copies=s in self.copies).rejected for s in self.sources)
        return min(1.0, max(of_all, default=1.0))

    def belief(self, reply: Reply, source: str, factor: float, now: int) -> Belief:
        """One drafter of a reply, as `of` has them."""
        prices, copies = self.prices, source in self.copies
        breadth = 1
        if source in self._branching:
            breadth = self._breadth(source, reply.status.texts[source])
        of_all = not copies and prices.requests > 1  # `agree` knows the room of each
        room = NO_LIMIT if of_all or not breadth else reply.state.room
        own = prices.of(source, copies=copies, factor=factor, breadth=max(1, breadth), room=room)
        probe, reads = math.inf, NO_LIMIT
        if not copies and breadth and reply.state.room:
            probe, reads = self._probe(reply, source, own, now)
        # One answer after the other, if all requests ask: that is what each of them waits for.
        answer = prices.requests * prices.token(source) if copies else 0.0
        return Belief(
            source,
            expected=partial(reply.expected, source, len(own.costs)),
            prices=own,
            copies=copies,
            answer=answer,
            looks=copies and self._is_answer_due(source, answer, now),
            breadth=breadth,
            branching=self._branching.get(source, CHAIN),
            at_best=own.at_best if self._is_trial_due(reply, source, now) else None,
            probe=probe,
            reads=reads,
        )

    def _is_trial_due(self, reply: Reply, source: str, now: int) -> bool:
        """Whether the drafter may be tried. What copies is asked in any case: that shows what
        passes cost, once some were seen.
        """
        if not self.prices.doubtful:
            measured = source in self.copies and self.prices.costs.confirmed
            if measured or self._is_early(reply):
                return False
        trial = self.looks((source, reply.state.sampling), now)[1]
        return trial.is_due(now) and self.session.left > 0

    def _is_answer_due(self, source: str, answer: float, now: int) -> bool:
        """Whether to see what an answer takes, or one that took long for a while would never be
        asked again. All requests may ask at once, and wait for all of them.
        """
        look, n = self._answered.setdefault(source, Look(TRIAL, now, TRIAL)), self.prices.requests
        price = min(AT_FIRST, n * answer)  # a session that begins with this belief can pay it
        return look.is_due(now) and price <= look.chance * self.session.left

    def _is_early(self, reply: Reply) -> bool:
        return reply.budget.emitted < min(TRIAL, self.usual / 4)

    def _probe(self, reply: Reply, source: str, prices: Prices, now: int) -> tuple[float, int]:
        """What a probe costs the reply, infinite where none is due that is worth it, and most
        tokens that it reads.
        """
        key, price = (source, reply.state.sampling), math.inf
        requests = self.prices.requests
        probe = self.looks(key, now)[0]
        if probe.is_due(now):
            price, worth = self._at_best_price(key, reply.state.unread, prices, now)
            # Without a draft by another.
            if price / requests > (1 - reply.chances) * self.left(reply.state) * worth:
                price = math.inf
                probe.postpone(now)
        if price / requests > reply.budget.spare and self._try_pricing(key, reply, prices, now):
            return 0.0, 1
        return price, NO_LIMIT

    def _try_pricing(self, key: Key, reply: Reply, prices: Prices, now: int) -> bool:
        """Whether to look at what a drafted token costs, by reading one: where drafts may win that
        price in the reply if they cost nothing, and the session has it. Else it is postponed.
        """
        look = self._priced.setdefault(key[0], Look(TRIAL, now, TRIAL, longest=NO_LIMIT))
        if self._is_early(reply) or reply.state.unread < 2 or not look.is_due(now):
            return False
        price = self.prices.reading(key[0], 1)
        if price > look.chance * self.session.left:
            return False
        worth = prospect(self.drafter(key), prices.free, (DOUBT,))
        if price / self.prices.requests <= self.left(reply.state) * worth:
            return True
        look.postpone(now)
        return False

    def _at_best_price(
        self, key: Key, unread: int, prices: Prices, now: int
    ) -> tuple[float, float]:
        """The price of reading what was missed, as low as it may well be, and what the drafter may
        win for each token in a text that is better than usual, by the share of useful looks.
        """
        best = prices.at_best
        price = self.prices.reading(key[0], unread)
        price *= best.cost / prices.cost if prices.cost else 1.0
        chance = self.looks(key, now)[0].chance
        return price, chance * prospect(self.drafter(key), best, (DOUBT,))

    def _breadth(self, source: str, text: AcceptanceEstimate) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring; 0 if
        even the least that the drafter needs take more.
        """
        branching, curve = self._branching[source], self.prices.unpadded
        if branching.least == 1 and self.prices.requests > 1:
            return 1  # a row more is one for each of them
        longer, deepest = 1.2, len(curve) - 1
        if branching.least == 1:
            mean = text.mean(text.table())
            more = 1 - branching.misses * (1 - mean)
            longer = sum(more**i for i in range(5)) / sum(mean**i for i in range(5))
        limit = longer * curve[min(4, deepest)]
        found = max((b for b in (2, 3, 4) if curve[min(b * 4, deepest)] <= limit), default=1)
        return found if found >= branching.least else 0

    def pay_for_reading(
        self, state: RequestState, source: str, reply: Reply | None, now: int
    ) -> bool:
        """Whether a drafter should read what it has not read: it is expected to win as much in the
        rest of the reply; or may, if none runs yet and the session can pay, which it then does.
        """
        if not state.room:
            return False
        key, tokens = (source, state.sampling), self.left(state)
        prices = self.prices.of(source, copies=False, room=state.room)
        price = self.prices.reading(source, state.unread)
        if reply is not None:  # else a probe reads too, and shows something
            expected = reply.expected(source, len(prices.costs))
            drafting = reply.drafting(source) if state.batch > 1 else 0
            place = min(drafting, state.room) - 1
            gain = expected.accepted()[0][place] if drafting else expected.gain(prices)
            return price <= tokens * for_each_token(gain)
        if price <= tokens * prospect(self.drafter(key), prices, (0.0, DOUBT)):
            return True
        price, worth = self._at_best_price(key, state.unread, prices, now)
        if price > min(self.session.left, tokens * worth):
            return False
        self.session.spend(price)
        return True
