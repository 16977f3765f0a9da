"""The controller: draft as far as it pays on this machine, and never so that it costs.

What is maximised is E[emitted] / seconds of a round, in units of plain decoding. E[emitted] comes
from calibrated confidences (`localspec.policy.survival`), seconds from the measured curve
(`localspec.policy.costs`). Leviathan et al. 2023, section 3.3, choose one K for all rounds from a
mean acceptance and a cost ratio; here each token is judged before it is drafted, and stopping is
compared with going on by E[emitted] - rate * seconds, rate being what the draft set out for (to
maximise a ratio is to maximise that difference at the best ratio).

Estimates are wrong when texts change, so no drafter bets more than it has won: each has a stake,
the plain tokens that it may lose, and a draft is no longer than the stake would bear if all of it were
rejected. That bounds the loss whatever happens, and lets drafts grow where they succeed.

A drafter that costs next to nothing (an n-gram) is asked every round. One that costs (a draft
model) is asked while that is expected to pay; else it is *parked*, and now and then it looks: it
reads what it missed in one pass and compares its own choices with what the target said. So a look
brings evidence on many tokens for the price of one pass of the draft, and no target pass is wasted.
The first thing that ever happens with an unknown draft is such a look.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.events import Speculation
from localspec.policy.costs import Costs
from localspec.policy.stored import Knowledge
from localspec.policy.survival import Survival, bin_of
from localspec.values import Budget, Evidence, Outcome, Plan, Standing, Step

K_MAX = 31
"""The longest draft: 32 rows in a pass."""
_AHEAD = 8
"""Tokens beyond the one in question that may justify it: the widest step of a known curve."""
_CHEAP = 0.01
"""A drafter below this share of a plain pass a token is simply asked."""
_MARGIN = 0.03
"""Tokens a round that asking a costly drafter must promise."""
_LOOKS = (4, 8, 24, 72, 256)
"""Rounds between looks while parked; the last one repeats."""
_PLAIN_EVERY = 128
"""While drafting, one round in this many is plain, to keep the comparison honest."""
_CURVE_EVERY = 16
"""Rounds between two looks at the curve of costs: it changes slowly."""
_FRESH, _MOST = 2.2, 8.0
"""Plain tokens that a drafter may lose at the start of a reply if it won as much before, and the
most it may ever lose at once."""
_INTEREST = 0.012
"""What every emitted token adds to that: about what bad luck may cost in the long run."""
_REGAIN = 0.4
"""What one token in mind that would have stood adds, up to a fresh start."""
_QUIET = 48
"""Rounds without a draft after which the person is told that drafting rests."""


def bucket_of(length: int) -> int:
    """Bucket of context lengths that share a curve: up to 1k, 4k, 16k, ... tokens."""
    return max(0, (max(1, length) - 1).bit_length() - 9) // 2


class Auto:
    """Never slower, whatever is drafted."""

    def __init__(self, knowledge: Knowledge, sources: Sequence[str], *, k_max: int = K_MAX) -> None:
        """``knowledge`` holds costs for at least one bucket of context length and goes on
        learning; ``sources`` are the names of the drafters in order of preference.
        """
        self.knowledge = knowledge
        self.costs = knowledge.costs[min(knowledge.costs)]
        """Those of the bucket that the last plan was for."""
        self._bucket = min(knowledge.costs)
        self._sources = tuple(sources)
        self._k_max = k_max
        self._kinds: dict[int, str] = {}
        """Kind of sampling by sequence."""
        self._round = 0
        self._relative: list[float] = []
        """Target pass by draft length, in plain passes."""
        self._looks: dict[tuple[str, str], tuple[int, int]] = {}
        """(Looks made so far, round of the next one) of parked drafters."""
        self._stakes: dict[tuple[str, str], float] = {}
        """What a drafter may lose now, in plain tokens."""
        self._won: dict[tuple[str, str], float] = {}
        """What it won in all."""
        self._idle = 0
        self.speculation = Speculation("on")

    @property
    def plain_seconds(self) -> float:
        """Expected seconds of a plain round now."""
        return self.costs.verify(1)

    # -- planning ------------------------------------------------------------------------------

    def plan(self, standings: Sequence[Standing]) -> list[Plan]:
        """Who may draft, and the pace that tells them how far."""
        self._round += 1
        batch = len(standings)
        self._enter(bucket_of(max(s.length for s in standings)))
        if self._round % _CURVE_EVERY == 1 or not self._relative:
            plain = self.costs.verify(batch)
            self._relative = [
                self.costs.verify(batch * (k + 1)) / plain for k in range(self._k_max + 1)
            ]
        if self._round % _PLAIN_EVERY == 0:
            return [Plan()] * batch
        plans = {}
        for standing in standings:
            self._kinds[standing.seq] = standing.sampling
            if standing.emitted == 0:
                for key, won in self._won.items():
                    self._stakes[key] = min(won, _FRESH)
                self._looks.clear()
            if standing.sampling not in plans:
                plans[standing.sampling] = self._plan(standing.sampling)
        return [plans[standing.sampling] for standing in standings]

    def _enter(self, bucket: int) -> None:
        if bucket == self._bucket:
            return
        known = self.knowledge.costs
        if bucket not in known:  # start from where we are: a longer context changes little at once
            now = {n: self.costs.verify(n) for n in self.costs.curve()}
            known[bucket] = Costs(now, self.costs.drafts())
        self._bucket, self.costs = bucket, known[bucket]
        self._relative = []

    def _plan(self, kind: str) -> Plan:
        steps: list[Step] = []
        reason = "nothing to draft from has come up yet"
        instead = 1.0
        for source in reversed(self._sources):
            survival = self.knowledge.survival.setdefault((source, kind), Survival())
            cost = self.costs.draft(source) / self.costs.verify(1)
            stake = self._stakes.get((source, kind), _FRESH)
            affordable = self._affordable(stake, cost)
            if cost < _CHEAP or (len(affordable) > 1 and self._pays(survival, cost)):
                self._looks.pop((source, kind), None)
                # Where nothing is affordable the pace refuses, but what it refused is judged.
                budget = Budget.chain(max(1, len(affordable) - 1))
                steps.insert(0, Step(source, budget, _Pace(survival, affordable, cost, instead)))
                if cost >= _CHEAP:
                    instead = max(instead, self._reaches(survival, cost))
            else:
                reason = self._parked(survival, cost)
                if self._may_pay(cost) and self._time_to_look(source, kind):
                    steps.append(Step(source, Budget(0, 0, 0), look=True))
        active = any(self.costs.draft(s.source) and not s.look for s in steps)
        if self._idle < _QUIET and steps and (active or self._idle < self._round):
            self.speculation = Speculation("on")
        else:
            self.speculation = Speculation("parked", reason)
        return Plan(tuple(steps))

    def _affordable(self, stake: float, cost: float) -> Sequence[float]:
        """The curve up to the longest draft whose complete loss the stake would bear."""
        for k in range(self._k_max, 0, -1):
            if self._relative[k] - 1 + k * cost <= stake:
                return self._relative[: k + 1]
        return self._relative[:1]

    def _pays(self, survival: Survival, cost: float) -> bool:
        """Whether asking a drafter is expected to gain on plain decoding."""
        table, mean = survival.table(), survival.mean()
        gain = sum(
            share * max(0.0, self._best(table[b], mean, cost))
            for b, share in enumerate(survival.firsts())
            if share
        )
        return gain - cost > _MARGIN

    def _reaches(self, survival: Survival, cost: float) -> float:
        """The rate that a drafter is expected to reach on average."""
        table, mean = survival.table(), survival.mean()
        return sum(
            share * _rate(table[b], mean, self._relative, cost)
            for b, share in enumerate(survival.firsts())
            if share
        )

    def _may_pay(self, cost: float) -> bool:
        """Whether it would if every token stood."""
        return self._best(1.0, 1.0, cost) - cost > _MARGIN

    def _best(self, first: float, then: float, cost: float) -> float:
        """Most that drafting gains in a round, in tokens over plain decoding."""
        best, emitted, reach = 0.0, 1.0, first
        for k in range(1, self._k_max + 1):
            emitted += reach
            best = max(best, emitted - self._relative[k] - (k - 1) * cost)
            reach *= then
        return best

    def _time_to_look(self, source: str, kind: str) -> bool:
        made, due = self._looks.setdefault((source, kind), (0, self._round + _LOOKS[0]))
        if self._round < due:
            return False
        pause = _LOOKS[min(made + 1, len(_LOOKS) - 1)]
        self._looks[source, kind] = (made + 1, self._round + pause)
        return True

    def _parked(self, survival: Survival, cost: float) -> str:
        if not self._may_pay(cost):
            return (
                f"a drafted token costs {cost:.0%} of a plain one and verifying "
                f"4 costs {self._relative[min(3, self._k_max)]:.1f} times one: nothing to gain"
            )
        if survival.evidence < 1:
            return "the draft is being compared with the target first"
        return f"plain decoding is faster here ({survival.mean():.0%} of drafted tokens stand)"

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Times by width, survival by confidence."""
        if not outcomes:
            return
        width = sum(1 + o.proposed for o in outcomes)
        seconds = max(o.round_s for o in outcomes)
        drafting = sum(o.draft_s for o in outcomes)
        self.costs.passed(width, seconds - drafting)
        for o in outcomes:
            if o.considered:
                self.costs.drafted(o.source, o.considered, o.draft_s)
        self._idle = 0 if width > len(outcomes) else self._idle + 1
        for o in outcomes:
            self._settle(o)
        drafted = {o.source for o in outcomes if o.proposed}
        for e in evidence:
            kind = self._kinds.get(e.seq)
            if kind is not None:
                known = self.knowledge.survival.setdefault((e.source, kind), Survival())
                known.learn(e.index, e.confidence, e.stood)
                if e.source not in drafted:
                    self._regain((e.source, kind), e.stood)

    def _settle(self, o: Outcome) -> None:
        """Book what a round won or lost against plain decoding, by the usual costs of its width."""
        kind = self._kinds.get(o.seq)
        if kind is None or not self._relative:
            return
        won = o.accepted + 1 - self._relative[min(o.proposed, self._k_max)]
        won -= o.draft_s / self.costs.verify(1)
        for source in self._sources:
            key = source, kind
            gain = _INTEREST * (1 + o.accepted) + (won if source == o.source else 0.0)
            self._stakes[key] = min(_MOST, self._stakes.get(key, _FRESH) + gain)
            self._won[key] = self._won.get(key, _FRESH) + gain

    def _regain(self, key: tuple[str, str], stood: bool) -> None:
        """A token that was not drafted would have stood: some trust comes back, or goes."""
        stake = self._stakes.get(key, _FRESH)
        if stake < _FRESH:
            self._stakes[key] = min(_FRESH, stake + (_REGAIN if stood else -_REGAIN))


class _Pace:
    """Whether one more token is worth it."""

    __slots__ = ("_cost", "_instead", "_mean", "_relative", "_table")

    def __init__(
        self, survival: Survival, relative: Sequence[float], cost: float, instead: float
    ) -> None:
        """``instead`` is the rate that this round would reach without this drafter."""
        self._table = survival.table()
        self._mean = survival.mean()
        self._relative = relative
        self._cost = cost
        self._instead = instead

    def more(self, confidences: Sequence[float]) -> bool:
        """The first token: whether any length beats doing without. Later ones: whether going on,
        up to eight tokens further, beats stopping, at the rate that the draft set out for.
        """
        k = len(confidences)
        relative = self._relative
        if k >= len(relative):
            return False
        rate = _rate(self._table[bin_of(confidences[0])], self._mean, relative, self._cost)
        if k == 1 or rate <= self._instead:
            return rate > self._instead
        reach = emitted = 1.0
        for confidence in confidences[:-1]:
            reach *= self._table[bin_of(confidence)]
            emitted += reach
        enough = emitted - rate * relative[k - 1]
        reach *= self._table[bin_of(confidences[-1])]
        ahead = 0.0
        for longer in range(k, min(k + _AHEAD, len(relative))):
            emitted += reach
            if emitted - rate * (relative[longer] + ahead) >= enough:
                return True
            ahead += self._cost
            reach *= self._mean
        return False


def _rate(first: float, then: float, relative: Sequence[float], cost: float) -> float:
    """Best E[emitted] / seconds over all draft lengths, plain decoding being 1."""
    best, emitted, reach = 1.0, 1.0, first
    for k in range(1, len(relative)):
        emitted += reach
        best = max(best, emitted / (relative[k] + k * cost))
        reach *= then
    return best


__all__ = ["K_MAX", "Auto", "bucket_of"]
