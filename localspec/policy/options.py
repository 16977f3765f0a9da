"""What is believed of each drafter for a request, and what it would be worth to find out more."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from localspec.core.branching import Branching
from localspec.core.plan import RequestState
from localspec.policy.acceptance import COPIED, AcceptanceEstimate, AcceptanceTuning
from localspec.policy.budgets import OWED, Look, Looks, ReplyBudget, SessionBudget
from localspec.policy.decide import BEHIND, UNDECIDED, Decision, Option
from localspec.policy.gain import DOUBT, ENOUGH, MARGIN, Expected, prospect
from localspec.policy.prices import RECENT, PriceList, Prices, row_factors
from localspec.policy.storage import Knowledge

COPYING = AcceptanceTuning(prior=8.0, spread=0.5, expected=COPIED)
"""Acceptance of what is copied from the text."""
USUAL = 96.0
"""Tokens of a reply before any was seen."""
JUDGED = 100.0
"""Judged tokens from which on a drafter is known."""
READING = 0.12
"""Share of a reply's time for which a drafter reads the prompt of which little is known."""
TRIED = 3
"""Most tokens of a draft that is to measure costs: a usual one shows how steep they are."""
TRIAL = 0.5
"""Savings that such a draft needs, and most that one is charged while costs are in doubt."""
LONGEST = 1024
"""Most missed tokens that a probe reads: a reply waits for them."""

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
    decision: Decision = UNDECIDED
    """That of the last round."""
    guesses: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(Predictions that were right, predictions in all) by drafter."""
    _expected: dict[str, tuple[int, int, Expected]] = field(default_factory=dict)
    """(Version of the text's estimate, longest draft, what follows) by drafter."""

    def expected(self, source: str, lengths: int) -> Expected:
        """What drafts of up to so many tokens are expected to emit."""
        text, known = self.texts[source], self._expected.get(source)
        if known is not None and known[0] == text.version and known[1] == lengths:
            return known[2]
        found = Expected(text, lengths)
        self._expected[source] = text.version, lengths, found
        return found

    def guessed(self, source: str, *, right: bool) -> None:
        """A prediction was compared with the token emitted."""
        before, judged = self.guesses.get(source, (0, 0))
        self.guesses[source] = before + right, judged + 1


class Options:
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
        self.looks = Looks()
        self.usual = USUAL
        """Tokens of a usual reply."""

    def drafter(self, key: Key) -> AcceptanceEstimate:
        """A drafter's acceptance under a kind of sampling, over all texts."""
        tuning = COPYING if key[0] in self.copies else AcceptanceTuning()
        estimate = self._knowledge.acceptance.setdefault(key, AcceptanceEstimate(tuning=tuning))
        estimate.tuning = tuning
        return estimate

    def begin(self, state: RequestState, now: int) -> Reply:
        """A reply begins; what is known of its drafters describes other texts."""
        texts = {}
        for source in filter(state.may_use, self.sources):
            key = source, state.sampling
            texts[source] = self._knowledge.acceptance[key] = self.drafter(key).new_text()
            self.probing(key, now).begin(now)
        return Reply(state, texts)

    def ended(self, last: RequestState) -> None:
        """A reply has ended, of which this round was the last: by itself, or by its limit."""
        if last.left > last.emitted or last.emitted >= self.usual:
            self.usual += RECENT * (last.emitted - self.usual)

    def left(self, state: RequestState) -> float:
        """Tokens that are still to come: replies of any length are as likely to go on."""
        return min(float(state.left), self.usual)

    # -- looks ---------------------------------------------------------------------------------

    def probing(self, key: Key, now: int) -> Look:
        """When a drafter that is not asked reads what it has missed, and compares."""
        return self.looks.at(("probe", *key), 2, 256, now)

    def trying(self, key: Key, now: int) -> Look:
        """When drafts that do not pay by known costs measure these again."""
        return self.looks.at(("trial", *key), 16, 256, now)

    def reading(self, key: Key, requests: int) -> Look:
        """When a drafter reads a prompt, of so many requests; its rounds are prompts."""
        return self.looks.at(("prompt", *key, requests), 1, 8, 0)

    def worth(self, key: Key, look: Look, prices: Prices, tokens: float) -> float:
        """What it is worth to look at a drafter, if it may then draft for so many tokens: what it
        would gain with luck, by the share of looks that were of use.
        """
        return tokens * look.chance * prospect(self.drafter(key), prices, (DOUBT,))

    # -- options -------------------------------------------------------------------------------

    def option(self, reply: Reply, source: str, factor: float, now: int) -> Option:
        """A drafter in the next round; the request is charged ``factor`` of the extra time."""
        prices, copies, key = self.prices, source in self.copies, (source, reply.state.sampling)
        breadth = self._breadth(source, reply.texts[source]) if source in self._branching else 1
        own = prices.of(source, copies=copies, factor=factor, breadth=max(1, breadth))
        at_best, probe = None, math.inf
        if not copies or prices.unconfirmed:
            look = self.trying(key, now)
            soon = 12 if prices.doubtful and not look.made else 0
            if look.due(now + soon) and self.session.left + OWED >= TRIAL:
                at_best = prices.at_best(source, own).upto(TRIED)
        if not copies and breadth and self.probing(key, now).due(now):
            probe = self._probe(reply, key, own, now)
        return Option(
            source,
            partial(reply.expected, source, len(own.costs)),
            own,
            copies,
            prices.costs.draft(source) / prices.costs.verify(1) if copies else 0.0,
            breadth,
            self._branching.get(source, Branching()),
            at_best,
            probe,
        )

    def _probe(self, reply: Reply, key: Key, prices: Prices, now: int) -> float:
        """The price of a probe that is due, if it is worth it; else infinite."""
        state, look = reply.state, self.probing(key, now)
        best = self.prices.at_best(key[0], prices)
        if state.unread <= LONGEST and best.most_gain > MARGIN:
            price = self.prices.reading(key[0], state.unread, self.prices.requests)
            if state.unread <= BEHIND and prices.cost:  # else it would cost too much if it is not
                price *= best.cost / prices.cost
            idle = (1 - reply.frequency) * self.left(state)  # without a draft by another
            if price <= self.worth(key, look, best, idle):
                return price
        look.later(now)
        return math.inf

    def _breadth(self, source: str, text: AcceptanceEstimate) -> int:
        """Nodes at each depth: the most whose extra time is less than the tokens they bring; 0 if
        even the least that the drafter needs take more.
        """
        branching, curve = self._branching[source], self.prices.unpadded
        longer, deepest = 1.2, len(curve) - 1
        if branching.least == 1:
            mean = text.mean(text.table())
            more = 1 - branching.misses * (1 - mean)
            longer = sum(more**i for i in range(5)) / sum(mean**i for i in range(5))
        limit = longer * curve[min(4, deepest)]
        found = max((b for b in (2, 3, 4) if curve[min(b * 4, deepest)] <= limit), default=1)
        return found if found >= branching.least else 0

    # -- prompts -------------------------------------------------------------------------------

    def worth_reading(self, state: RequestState, source: str, reply: Reply | None) -> bool:
        """Whether a drafter should read what it has not read: what it is expected to win in the
        rest of the reply is worth the time, or what it would show is. ``reply`` is the one that
        runs, if it does.
        """
        key, n, tokens = (source, state.sampling), state.batch, self.left(state)
        prices = self.prices.of(source, copies=False, factor=row_factors([0.5] * n)[0])
        price = self.prices.reading(source, state.unread, n)
        look = self.reading(key, n)
        if prices.most_gain > MARGIN:
            whole = self.prices.reading_alone(state.unread) + tokens
            known = self.drafter(key).evidence >= JUDGED
            limit = math.inf if known else READING * whole / n
            worth = tokens * look.chance * self._gain(key, prices, reply)
            if price <= min(worth, limit):
                if reply is None:
                    look.look(0)
                return True
        if reply is not None:
            return False  # a probe reads too, and shows something
        look.since -= 1  # its rounds are prompts
        best = self.prices.at_best(source, prices)
        price *= best.cost / prices.cost if prices.cost else 1.0
        if look.due(0) and price <= min(self.session.left, self.worth(key, look, best, tokens)):
            look.look(0)
            self.session.spend(price)
            return True
        return False

    def _gain(self, key: Key, prices: Prices, reply: Reply | None) -> float:
        """Tokens that a drafter is expected to win for each one of the text."""
        source = key[0]
        if reply is not None and source in reply.texts:
            gain = reply.expected(source, len(prices.costs)).gain(prices)
            if gain <= MARGIN or reply.guesses.get(source, (0, 0))[1] >= ENOUGH:
                return max(0.0, gain) / (1 + max(0.0, gain)) if gain > MARGIN else 0.0
        return prospect(self.drafter(key), prices, (0.0, DOUBT))


__all__ = ["LONGEST", "TRIAL", "Key", "Options", "Reply"]
