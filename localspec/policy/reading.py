"""Whether drafters that compute should read what they have not read."""

from __future__ import annotations

import math

from localspec.core.plan import RequestState
from localspec.policy.gain import Prices, most_gain, never_paid, prospect
from localspec.policy.parts import Parts
from localspec.policy.trials import Trials


class PromptReading:
    """Weighs the time for reading against what drafts may win."""

    def __init__(self, parts: Parts, trials: Trials) -> None:
        self._parts, self._trials = parts, trials
        self._prompts: dict[int, tuple[int, bool]] = {}
        """For each sequence: length of the prompt being read, and whether drafters read it too."""
        self._decided: dict[int, bool] = {}
        """By sequence: whether drafters were to read it when that was decided last."""

    def decided(self, seq: int) -> bool | None:
        """Whether drafters were to read the sequence when that was decided last, if it was."""
        return self._decided.get(seq)

    def running(self, seq: int) -> bool:
        """Whether the prompt of the sequence was being read when its next round was planned."""
        return seq in self._prompts

    def ended(self, seq: int) -> None:
        """The prompt of the sequence was read."""
        self._prompts.pop(seq, None)

    def expects_drafts(self, state: RequestState) -> bool:
        """Whether a drafter that computes should read what it has not read: what it is expected to
        win in the rest of the reply, in the company that the request has, is worth more than the
        time for reading, or is unknown and reading costs next to nothing.
        """
        parts = self._parts
        if not state.emitted and state.seq in self._prompts:
            length, reads = self._prompts[state.seq]
            if length == state.length:  # the next part of the same prompt
                return reads
        parts.passes.read(state.length, state.company, parts.planned.number)
        reads = False
        for source in parts.sources:
            if source not in parts.free and state.may_use(source):
                reads = self._worth_reading(state, source) or reads
        self._decided[state.seq] = reads
        if not state.emitted:
            self._prompts[state.seq] = state.length, reads
        return reads

    def _worth_reading(self, state: RequestState, source: str) -> bool:
        """Whether reading the unread tokens is worth what the drafter may win in the reply."""
        parts = self._parts
        tuning, key = parts.tuning.gain, (source, state.sampling)
        cost = parts.cost(source, state.company)
        factor = parts.sharing.expected_factor(state.company)
        prices = Prices(1 + (parts.passes.curve - 1) * factor, cost)
        passes = parts.costs.verify(max(1, state.unread)) / parts.costs.verify(1)
        each, tokens = parts.read_shares.get(source), parts.replies.expected(state)
        reading = cost * (passes if each is None else max(1.0, each * state.unread))
        if most_gain(prices.curve, cost) <= tuning.margin:
            hoped = self._trials.hoped(source, prices)
            if not parts.unconfirmed or most_gain(hoped.curve, hoped.cost) <= tuning.margin:
                return False
            return not state.emitted and parts.probes.explores(key, reading, passes + tokens)
        drafter = parts.estimates.drafter(key)
        if state.emitted and not self._would_draft(state, source):
            return False  # a probe reads too, and shows something
        if not never_paid(drafter, prices.curve, cost, tuning):
            kind = *key, state.company
            seen = self._seen(state, source)
            gain = prospect(drafter, prices, tuning) if seen is None else seen
            won = parts.winnings.expected(kind, gain) if seen is None else gain
            whole = passes + state.emitted + tokens
            known = parts.winnings.known(kind) or drafter.evidence >= parts.tuning.judged
            alone = state.company == 1 and tokens >= parts.tuning.long
            share = parts.tuning.alone if alone else parts.tuning.unknown
            limit = math.inf if known else share * whole
            if reading <= min(tokens * won, limit):
                return True
        if state.emitted:
            return False
        return parts.probes.explores(key, reading, passes + tokens)

    def _would_draft(self, state: RequestState, source: str) -> bool:
        """Whether the drafter would draft now if it had read the text."""
        parts = self._parts
        newest = parts.outlooks.newest(state.seq, source)
        if newest is None or state.seq not in parts.ledgers:
            return True
        return newest.tokens > parts.tuning.gain.margin

    def _seen(self, state: RequestState, source: str) -> float | None:
        """Tokens that the drafter is expected to win for each one of this text, by what it has
        shown in it; None where it has shown nothing.
        """
        parts = self._parts
        ledger = parts.ledgers.get(state.seq)
        if not state.emitted or ledger is None or ledger.guesses(source)[1] < parts.tuning.shown:
            return None
        newest = parts.outlooks.newest(state.seq, source)
        if newest is None:
            return None
        tokens = max(0.0, newest.tokens)
        return tokens / (1 + tokens)


__all__ = ["PromptReading"]
