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

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from localspec.core.branching import Branching
from localspec.core.events import Speculation
from localspec.core.plan import PLAIN, DraftPlan, Evidence, Outcome, RequestState
from localspec.core.settings_schema import MAX_K
from localspec.policy.costs import Costs
from localspec.policy.learning import Learning
from localspec.policy.parts import Parts, Planned
from localspec.policy.pass_costs import bucket_of
from localspec.policy.planner import RequestPlanner
from localspec.policy.reading import PromptReading
from localspec.policy.standing import Standing
from localspec.policy.storage import Knowledge
from localspec.policy.trials import Trials
from localspec.policy.tuning import ControllerTuning


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
        tuning: ControllerTuning = ControllerTuning(),  # noqa: B008 - frozen
    ) -> None:
        """``knowledge`` has costs for at least one bucket of context length and is updated;
        ``sources`` are the names of the drafters in order of preference, ``free`` those of them
        that copy from the text, ``branching`` those that draft trees where the budget has room.
        ``pads``: whether the target pads passes over one request to wider ones that are quicker.
        ``read_shares``: by drafter, the time for a token that it reads with others, as a share of
        that for a drafted one; where it is missing, drafters read as the target's passes do.
        """
        self.knowledge = knowledge
        self._parts = Parts(
            knowledge, sources, free, branching or {}, k_max, pads, read_shares or {}, tuning
        )
        self._trials = Trials(self._parts)
        self._reading = PromptReading(self._parts, self._trials)
        self._learning = Learning(self._parts, self._trials)
        self._plain_round = 0
        """The last round in which nothing was drafted."""
        self._plain_seen: Counter[tuple[int, int]] = Counter()
        """Such rounds by bucket of context length and number of requests."""
        self._standing = Standing(self._parts, self._trials, self._reading)
        self._planner = RequestPlanner(self._parts, self._trials, self._standing)

    @property
    def speculation(self) -> Speculation:
        """The state of the request that was planned last."""
        return self._standing.last

    def speculation_of(self, seq: int) -> Speculation:
        """See `Standing.of`."""
        return self._standing.of(seq)

    @property
    def costs(self) -> Costs:
        """The costs for the context length of the last plan."""
        return self._parts.costs

    def measured(self, curves: Mapping[int, Costs]) -> None:
        """Replace all curves by new measurements, by bucket of context length."""
        self._parts.passes.replace(curves)

    def expects_drafts(self, state: RequestState) -> bool:
        """See `PromptReading`."""
        return self._reading.expects_drafts(state)

    # -- planning ------------------------------------------------------------------------------

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        """One plan for each request: who may draft, and the pace that decides how far."""
        parts = self._parts
        parts.planned = Planned(
            parts.planned.number + 1,
            len(states),
            {s.seq: s.length for s in states},
            {s.seq: s.unread for s in states},
        )
        parts.passes.read(max(s.length for s in states), len(states), parts.planned.number)
        self._trials.begin_round()
        for state in states:
            if not state.foreign and self._is_new(state):
                self._begin(state)
        parts.sharing.among([s.seq for s in states if not s.foreign], parts.passes.curve)
        plans = [PLAIN if state.foreign else self._planner.plan(state) for state in states]
        known = self._plain_seen[self._company()] >= parts.tuning.plain_known
        every = parts.tuning.plain_every if known else parts.tuning.plain_first
        if parts.planned.number - self._plain_round >= every:
            return [PLAIN] * len(states)
        return plans

    def _company(self) -> tuple[int, int]:
        return self._parts.passes.bucket, self._parts.planned.requests

    def _is_new(self, state: RequestState) -> bool:
        """Whether this is the first round of a reply that it plans; one before may have been plain,
        while drafters had not read the prompt.
        """
        parts = self._parts
        return (
            state.emitted == 0 or self._reading.running(state.seq) or state.seq not in parts.ledgers
        )

    def _begin(self, state: RequestState) -> None:
        """A reply begins."""
        parts = self._parts
        if (last := parts.ledgers.get(state.seq)) is not None:
            kind = parts.estimates.kind(state.seq)
            parts.credits.close(last, kind, last.drafters)
            for source in last.read:
                won = last.won_by.get(source, 0.0)
                parts.winnings.learn((source, kind, last.requests), won, last.emitted)
        parts.replies.begin(state.seq)
        parts.sharing.begin(state.seq)
        self._standing.begin(state.seq)
        self._planner.begin(state.seq)
        self._reading.ended(state.seq)
        sources = [*filter(state.may_use, parts.sources)]
        ledger = parts.credits.open(state.sampling, sources)
        ledger.requests = parts.planned.requests
        if state.unread <= parts.tuning.behind:
            ledger.read = {source for source in sources if source not in parts.free}
        parts.ledgers[state.seq] = ledger
        parts.estimates.new_text(state.seq, state.sampling, sources)
        parts.probes.new_reply(parts.planned.number)

    # -- learning ------------------------------------------------------------------------------

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and the ledgers by the gain."""
        if not outcomes:
            return
        plain, free = True, self._parts.free
        shown, copying = {e.seq for e in evidence}, set()
        for o in outcomes:
            # Tokens that a grammar forces count as plain, or where many requests have some in every
            # round, none would ever be plain and nothing drafted. So do those of foreign policies.
            plain = plain and (o.foreign or not (o.proposed or o.padding))
            if o.proposed or o.considered or o.probed is not None:
                shown.add(o.seq)
            if o.accepted and o.source in free:
                copying.add(o.seq)
        if plain:
            self._plain_round = self._parts.planned.number
            self._plain_seen[self._company()] += 1
        self._planner.learnt(shown, copying)
        self._learning.learn(outcomes, evidence)
        self._standing.learn(outcomes)


__all__ = ["Controller", "bucket_of"]
