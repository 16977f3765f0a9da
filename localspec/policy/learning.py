"""Learning from rounds: times, acceptance, and the gain or loss of each reply."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import Evidence, Outcome
from localspec.policy.parts import Parts
from localspec.policy.trials import Trials

KEPT_UP = 2
"""Tokens that a drafter reads at most in its first pass of a draft, where it drafts every round."""
ANSWER = 1e-4
"""Most seconds that count of the first answer of a drafter that copies: it may include the time for
indexing a long text."""


class Learning:
    """Takes the outcomes of rounds, and the evidence of drafters."""

    def __init__(self, parts: Parts, trials: Trials) -> None:
        self._parts, self._trials = parts, trials

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        """Update times by width, acceptance by confidence, and the ledgers by the gain. There is at
        least one outcome.
        """
        parts = self._parts
        width, seconds, drafting = 1, 0.0, 0.0
        for o in outcomes:
            width, seconds = max(width, o.width), max(seconds, o.round_s)
            drafting += o.apart_s
        parts.costs.passed(len(outcomes) * width, seconds - drafting)
        for o in outcomes:
            if not o.foreign:
                self._learn_cost(o)
        self._settle(outcomes)
        parts.probes.round_ended(len(outcomes))
        drafted = {(o.seq, o.source) for o in outcomes if o.proposed} if evidence else ()
        for e in evidence:
            parts.estimates.learn(e)
            ledger = parts.ledgers.get(e.seq)
            if ledger is not None:
                ledger.predicted(e.source, e.accepted, drafted=(e.seq, e.source) in drafted)

    def _learn_cost(self, o: Outcome) -> None:
        """Record what drafting cost: an answer, drafted tokens, a probe."""
        parts = self._parts
        if o.probed is not None:
            length, cost = parts.planned.lengths.get(o.seq, 0), self._plain(o.probed.seconds)
            token = parts.cost(o.probed.source, parts.planned.requests)
            parts.costs.bounded(o.probed.source, o.probed.seconds)
            parts.probes.probed(o.seq, o.probed.source, length, cost, token)
        if o.source in parts.free:
            if o.draft_s > 0:
                known = parts.costs.draft(o.source) > 0
                parts.costs.answered(o.source, o.draft_s if known else min(o.draft_s, ANSWER))
        elif o.considered:
            if parts.planned.unread.get(o.seq, 0) <= KEPT_UP:
                parts.costs.drafted(o.source, o.considered, o.draft_s)
            else:
                parts.costs.bounded(o.source, o.draft_s / o.considered)
            parts.probes.has_read(o.seq, o.source, parts.planned.lengths.get(o.seq, 0))

    def _reading(self, source: str, unread: int) -> float:
        """Expected seconds of a drafter that computes for reading the tokens that it missed."""
        parts = self._parts
        if unread <= KEPT_UP or source in parts.free:
            return 0.0
        return parts.probes.reading(source, unread, parts.cost(source, parts.planned.requests))

    def _plain(self, seconds: float) -> float:
        """Tokens that plain decoding would have emitted in the time, for all requests together."""
        parts = self._parts
        return seconds * parts.planned.requests / parts.costs.verify(parts.planned.requests)

    def _spent(self, o: Outcome) -> float:
        """Tokens that plain decoding would have emitted in the time for drafting: what it was
        expected to take where the drafter computed, else what it took.
        """
        parts = self._parts
        if not o.considered:
            return self._plain(o.draft_s) if o.draft_s else 0.0
        each = parts.cost(o.source, parts.planned.requests)
        return o.considered * each + self._reading(o.source, parts.planned.unread.get(o.seq, 0))

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Credit tokens gained over plain decoding at *expected* pass cost, so that a stall is not
        charged to the drafter. The extra time of a pass is shared by those who drafted.
        """
        parts = self._parts
        widest = drafters = 0
        for o in outcomes:
            widest, drafters = max(widest, o.proposed), drafters + (o.proposed > 0)
        longer = share = 0.0
        if drafters:
            longer = float(parts.passes.curve[min(widest, len(parts.passes.curve) - 1)]) - 1
            share = len(outcomes) / drafters * longer
        asking = 0.0
        for o in outcomes:
            ledger = parts.ledgers.get(o.seq)
            if o.foreign or ledger is None:
                continue
            spent = self._spent(o)
            if o.probed is not None:
                probing = self._plain(o.probed.seconds)
                asking += probing / len(outcomes)
                ledger.settle(0, -probing, o.probed.source)
            asking += spent / len(outcomes)
            gain = o.accepted - spent - (share if o.proposed else 0.0)
            ledger.settle(1 + o.accepted + o.forced, gain, o.source)
            if o.proposed:
                ledger.drafters.add(o.source)
            parts.sharing.drafted(o.seq, o.proposed > 0)
            key = o.source, parts.estimates.kind(o.seq)
            if self._trials.made(key):
                parts.probes.tried(
                    key, parts.planned.number, o.proposed > 0, -gain, doubtful=parts.doubtful
                )
        n = len(outcomes)
        if n > 1:
            ends = 1 - parts.costs.verify(n - 1) / parts.costs.verify(n)
            emitted = {o.seq: 1 + o.accepted for o in outcomes if not o.foreign}
            parts.sharing.settle(emitted, longer + asking, ends)


__all__ = ["Learning"]
