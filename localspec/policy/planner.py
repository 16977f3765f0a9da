"""Plans the draft of one request: who may draft, and the pace that decides how far.

Most rounds of a parked reply bring no evidence, and their plan would be the same each time. It is
kept for a few of them: where the target is small, planning takes more of its pass than a parked
reply may lose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from localspec.core.plan import NO_LIMIT, NOTHING, Budget, DraftPlan, DraftStep, RequestState
from localspec.policy.gain import Curve, Outlook
from localspec.policy.ledger import Ledger
from localspec.policy.pace import GainPace
from localspec.policy.parts import Parts
from localspec.policy.standing import Cause, Decided, Standing
from localspec.policy.trials import Trials


@dataclass(frozen=True, slots=True)
class _Kept:
    """The plan of a parked reply, for the rounds that follow."""

    plan: DraftPlan
    until: float
    """The round in which the reply is planned anew at the latest."""
    state: RequestState
    curve: Curve
    most: float
    """What the other requests could bear."""
    paces: Mapping[str, GainPace]
    """Those of its drafters, all of which copy."""

    def stands(
        self, state: RequestState, curve: Curve, most: float, now: int, *, behind: int
    ) -> bool:
        """Whether nothing has changed that it depends on."""
        before = self.state
        return (
            now < self.until
            and self.curve is curve
            and most >= self.most
            and state.sampling == before.sampling
            and state.drafters == before.drafters
            and (state.unread > behind) == (before.unread > behind)
        )


class RequestPlanner:
    """Plans the drafts of each request by what has been measured, and what its reply can afford."""

    def __init__(self, parts: Parts, trials: Trials, standing: Standing) -> None:
        self._parts, self._trials, self._standing = parts, trials, standing
        self._kept: dict[int, _Kept] = {}
        """By sequence."""
        self._copying: Collection[int] = ()
        """Sequences whose last draft was copied from the text and accepted at least in part."""

    def begin(self, seq: int) -> None:
        """A reply begins in the sequence."""
        self._kept.pop(seq, None)

    def learnt(self, seqs: Collection[int], copying: Collection[int]) -> None:
        """The last round has shown something of the drafts for these sequences; those ``copying``
        accepted copied tokens.
        """
        self._copying = copying
        for seq in seqs:
            self._kept.pop(seq, None)

    def plan(self, state: RequestState) -> DraftPlan:
        """The plan of the request's next round."""
        parts, tuning = self._parts, self._parts.tuning
        parts.replies.planned(state)
        curve, most = parts.sharing.charged(state.seq), parts.sharing.affordable(state.seq)
        now, kept = parts.planned.number, self._kept.get(state.seq)
        if kept is not None:
            if kept.stands(state, curve, most, now, behind=tuning.behind):
                for source, pace in kept.paces.items():
                    pace.allow(parts.ledgers[state.seq].allowed(source))
                return kept.plan
            del self._kept[state.seq]
        plan, parked = self._anew(state, curve, most)
        until = min(now + tuning.kept, self._next_due(state))
        if parts.planned.requests == 1:  # one of them may not be padded, see `_padded`
            until = min(until, now + tuning.unpadded_every - now % tuning.unpadded_every)
        if parked and not parts.doubtful and now % tuning.unpadded_every and until > now + 1:
            paces = {s.source: s.pace for s in plan.steps if isinstance(s.pace, GainPace)}
            self._kept[state.seq] = _Kept(plan, until, state, curve, most, paces)
        return plan

    def _next_due(self, state: RequestState) -> float:
        """The next round in which a probe or a trial becomes due."""
        parts = self._parts
        return min(
            parts.probes.next_due((source, state.sampling), parts.planned.number)
            for source in parts.sources
        )

    def _anew(self, state: RequestState, curve: Curve, most: float) -> tuple[DraftPlan, bool]:
        """The plan, and whether it may serve for the next rounds too: no drafter computes in it or
        has a trial, and none is parked by what the reply can afford, which grows with every token.
        """
        parts = self._parts
        steps: list[DraftStep] = []
        probe: DraftStep | None = None
        causes: list[Cause] = []
        instead = 1.0
        ledger = parts.ledgers[state.seq]
        alone = parts.planned.requests == 1
        bearable = ledger.bearable(state.emitted + parts.replies.expected(state))
        for source in filter(state.may_use, reversed(parts.sources)):
            text, allowed = parts.estimates.text(state.seq, source), ledger.allowed(source)
            breadth = parts.trees.breadth(source, text, parts.passes.unpadded)
            if breadth < parts.trees.least(source):
                causes.insert(0, Cause(source, "breadth"))
                continue
            own = parts.passes.unpadded if breadth > 1 and alone else curve
            prices = parts.prices.of(
                source, own, breadth, parts.cost(source, parts.planned.requests)
            )
            outlook = parts.outlooks.of(state.seq, source, text, prices, parts.planned.number)
            if source in parts.free:
                if self._may_ask(source, ledger):
                    causes.insert(0, Cause(source, "copies", outlook, allowed, most))
                    trial = self._trials.of_copied(state, source, outlook, allowed, most)
                    steps.insert(0, self._step(source, breadth, trial, instead, allowed, most))
                else:
                    causes.insert(0, Cause(source, "answer"))
                continue
            parts.probes.has_read(state.seq, source, state.length - state.unread)
            allowed = min(allowed, bearable)
            decided = self._against(state, outlook, allowed, most)
            causes.insert(0, Cause(source, decided, outlook, allowed, most, breadth, state.unread))
            if decided == "asked":
                parts.probes.drafts((source, state.sampling))
                steps.insert(0, self._step(source, breadth, outlook, instead, allowed, most))
                instead = max(instead, outlook.gain(allowed, most).rate())
                continue
            step = self._parked(state, source, breadth, outlook, allowed, most)
            if step is not None and step.probe:
                probe = step
            elif step is not None:
                steps.insert(0, step)
        self._standing.planned(state.seq, causes)
        probes = () if probe is None else (probe,)
        parked = (
            not probes
            and all(step.source in parts.free for step in steps)
            and all(cause.decided != "ledger" for cause in causes)
            and not any(self._trials.made((step.source, state.sampling)) for step in steps)
        )
        return self._padded((*probes, *steps)), parked

    def _padded(self, steps: tuple[DraftStep, ...]) -> DraftPlan:
        """The plan of these steps. Now and then its pass may not be padded, and has a width that
        passes are padded from unseen, if there is one.
        """
        parts = self._parts
        if parts.planned.requests > 1:
            return DraftPlan(steps)
        if parts.planned.number % parts.tuning.unpadded_every:
            return DraftPlan(steps, parts.passes.widths)
        plan, untried = DraftPlan(steps), parts.passes.untried()
        return plan.within(untried - 1, NO_LIMIT) if untried else plan

    def _against(
        self, state: RequestState, outlook: Outlook, allowed: float, most: float
    ) -> Decided:
        """What keeps a drafter that computes from drafting, if anything."""
        tuning = self._parts.tuning
        if outlook.tokens <= tuning.gain.margin:
            return "gain"
        if state.unread > tuning.behind:
            return "unread"
        paying = outlook.gain(allowed, most).tokens() > tuning.gain.margin
        return "asked" if paying else "ledger"

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
        parts = self._parts
        tuning, key = parts.tuning, (source, state.sampling)
        if state.unread <= tuning.behind:
            trial = self._trials.trial(state, source, outlook, allowed, most)
            if trial is not None:
                return self._step(source, breadth, trial, 1.0, allowed, most)
        if not parts.probes.may_be_due(key, parts.planned.number):
            return None
        hoped = self._trials.hoped(source, outlook.prices)
        if state.unread > tuning.behind:  # credit is for drafts
            allowed = min(allowed, parts.ledgers[state.seq].slack)
        here = {state.seq: state.length}
        if not parts.probes.may_pay(source, here, hoped.cost, allowed):
            return None
        if state.seq in self._copying or hoped.most_gain() <= tuning.gain.margin:
            return None
        hopeless = parts.outlooks.hopeless(state.seq, source)
        if parts.probes.due(
            key, parts.planned.number, here, hoped.cost, allowed, hopeless=hopeless
        ):
            return DraftStep(source, NOTHING, probe=True)
        return None

    def _step(
        self,
        source: str,
        breadth: int,
        outlook: Outlook,
        instead: float,
        allowed: float,
        most: float,
    ) -> DraftStep:
        parts = self._parts
        pace = GainPace(outlook, instead, allowed, most)
        if source in parts.free:  # what it costs to look further is nothing
            return DraftStep(source, Budget.chain(len(outlook.prices.costs)), pace)
        # Where nothing is affordable the pace refuses, but the refused token is evidence.
        return DraftStep(source, parts.trees.budget(source, breadth, max(1, pace.depth)), pace)

    def _may_ask(self, source: str, ledger: Ledger) -> bool:
        """Whether the answer of a drafter that copies costs nothing, or no more than the reply can
        lose: passes of very small models are as short as looking something up.
        """
        parts = self._parts
        answer = parts.costs.draft(source) / parts.costs.verify(1)
        return answer < parts.tuning.cheap or answer <= ledger.slack


__all__ = ["RequestPlanner"]
