"""When a parked drafter probes: by a schedule that backs off, and within a savings account.

A probe reads the tokens that the drafter has missed, which may be a whole long prompt. So 0.8 %
of each round is saved for probes, and a probe that is expected to cost more than the savings waits.
Cheap probes, over a few tokens, depend on their schedule alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.policy.ledger import Key


@dataclass(frozen=True, slots=True)
class ProbeTuning:
    """Constants of `ProbeSchedule`; costs are in plain rounds."""

    intervals: tuple[int, ...] = (2, 4, 8, 24, 72, 256)
    """Rounds between probes; the last one repeats."""
    patient: int = 3
    """Place in the intervals of the first one of a drafter whose drafts were never worth it."""
    share: float = 0.008
    """Saved every round."""
    initial: float = 1.0
    """Saved at the start."""
    most: float = 3.0
    """Largest savings."""
    cheap: float = 0.3
    """Cost that a probe may always have, as far as savings are concerned."""
    beyond: float = 0.1
    """Cost of a probe beyond what the reply can lose."""
    batched: float = 0.25
    """Assumed cost of a token read with many others, relative to one alone."""
    weight: float = 0.3
    """Weight of a new measurement of that cost."""
    longest: int = 1024
    """Most missed tokens that a probe reads: what many tokens cost is a guess from a few, and a
    wrong one would hold up the reply."""
    trifling: float = 0.001
    """Share for which it reads every prompt."""
    explored: float = 0.01
    """Share of a reply's time for which a drafter that is not expected to pay reads its prompt."""
    unread: int = 8
    """Most prompts in a row that a drafter does not read."""
    trial_intervals: tuple[int, ...] = (16, 32, 64, 128, 256)
    """Rounds between trial drafts, which pay only if the machine has become faster."""
    sooner: int = 12
    """Rounds by which the first one is earlier where costs are doubtful."""
    trial_cost: float = 0.5
    """Savings that a trial needs."""


class ProbeSchedule:
    """Probes and trials of all drafters; costs are in plain rounds."""

    def __init__(self, tuning: ProbeTuning = ProbeTuning()) -> None:
        self._tuning = tuning
        self._saved = tuning.initial
        self._schedule: dict[Key, tuple[int, int]] = {}
        """(Probes so far, round of the next one)."""
        self._read: dict[tuple[int, str], int] = {}
        """Tokens of a sequence that a drafter has read."""
        self._each: dict[str, float] = {}
        """Cost of a token read in a probe."""
        self._unread: dict[Key, tuple[int, int]] = {}
        """(Prompts that were not read in a row, and that may not be read)."""
        self._trials: dict[Key, tuple[int, int]] = {}
        """(Trials so far, round of the next one)."""

    def new_reply(self, now: int) -> None:
        """Another text begins in round ``now``: restart the schedules."""
        for key, (made, _) in self._schedule.items():
            self._schedule[key] = min(made, 1), now + self._tuning.intervals[0]

    def explores(self, key: Key, cost: float, whole: float) -> bool:
        """Whether a drafter should read a prompt although it is not expected to win that back, to
        see what it can do: out of savings, and for a small share of what the ``whole`` reply takes.
        After each time it waits for twice as many prompts.
        """
        if cost <= self._tuning.trifling * whole:
            return True
        skipped, most = self._unread.get(key, (0, 0))
        if skipped < most or cost > min(self._saved, self._tuning.explored * whole):
            self._unread[key] = skipped + 1, most
            return False
        self._saved -= cost
        self._unread[key] = 0, min(max(1, 2 * most), self._tuning.unread)
        return True

    def round_ended(self, requests: int = 1) -> None:
        """Save the share of one round of that many requests."""
        self._saved = min(self._tuning.most, self._saved + self._tuning.share * requests)

    def has_read(self, seq: int, source: str, length: int) -> None:
        """The drafter has read the first ``length`` tokens of the sequence."""
        self._read[seq, source] = length

    def drafts(self, key: Key) -> None:
        """The drafter is not parked; its schedules restart when it will be."""
        self._schedule.pop(key, None)
        self._trials.pop(key, None)

    def may_try(self, key: Key, now: int, *, soon: bool = False) -> bool:
        """Whether to draft in round ``now`` although it does not pay by the known costs; ``soon``
        if these are doubtful.

        The costs of a parked drafter would never be measured again otherwise, and machines change.
        """
        made, due = self._trials.setdefault(key, (0, now + self._tuning.trial_intervals[0]))
        if soon and not made:
            due -= self._tuning.sooner
        return now >= due and self._saved >= self._tuning.trial_cost

    def put_off(self, key: Key, now: int) -> None:
        """A trial that was due in round ``now`` would not pay either."""
        self._trials[key] = self._trials[key][0], now + self._tuning.trial_intervals[0]

    def tried(
        self, key: Key, now: int, drafted: bool, cost: float, *, doubtful: bool = False
    ) -> None:
        """A trial has run. One without a draft is repeated at once. Where costs are ``doubtful``
        all the same, so is what it cost, and the next one follows as soon as the first.
        """
        intervals = self._tuning.trial_intervals
        self._saved -= max(0.0, min(cost, self._tuning.trial_cost) if doubtful else cost)
        if drafted:
            made = min(self._trials.get(key, (0, 0))[0] + 1, len(intervals) - 1)
            self._trials[key] = made, now + intervals[0 if doubtful else made]

    def next_due(self, key: Key, now: int) -> float:
        """The first round after ``now`` in which a probe or a trial may be due that is not yet."""
        tuning, (_, probe) = self._tuning, self._schedule.get(key, (0, 0))
        made, trial = self._trials.get(key, (0, 0))
        dues = probe, trial, trial - tuning.sooner * (not made)
        return min((due for due in dues if due > now), default=math.inf)

    def may_be_due(self, key: Key, now: int) -> bool:
        """A quick test; where it is false, `due` is false too."""
        _, due = self._schedule.setdefault(key, (0, now + self._tuning.intervals[0]))
        return now >= due

    def may_pay(self, source: str, lengths: dict[int, int], cost: float, loss: float) -> bool:
        """A quick test; where it is false, a probe costs more than `due` ever allows."""
        tuning = self._tuning
        allowed = min(loss + tuning.beyond, max(self._saved, tuning.cheap))
        return self._expected(source, lengths, cost) <= allowed

    def due(
        self,
        key: Key,
        now: int,
        lengths: dict[int, int],
        cost: float,
        loss: float,
        *,
        hopeless: bool,
    ) -> bool:
        """Whether to probe in round ``now``.

        ``lengths`` are the tokens of each sequence; ``cost`` is that of a drafted token; ``loss``
        is what the reply can lose for this drafter. One that was ``hopeless`` until now is probed
        from savings alone.
        """
        tuning, intervals = self._tuning, self._tuning.intervals
        made, due = self._schedule.setdefault(key, (0, now + intervals[0]))
        if hopeless and made < tuning.patient:
            due += intervals[tuning.patient] - intervals[made]
        if hopeless:
            allowed = min(loss, self._saved)
        else:
            allowed = min(loss + tuning.beyond, max(self._saved, tuning.cheap))
        if now < due or self._expected(key[0], lengths, cost) > allowed:
            return False
        made = min(max(made + 1, tuning.patient * hopeless), len(intervals) - 1)
        self._schedule[key] = made, now + intervals[made]
        return True

    def _expected(self, source: str, lengths: dict[int, int], cost: float) -> float:
        """Expected cost of a probe."""
        missing = sum(n - self._read.get((seq, source), 0) for seq, n in lengths.items())
        if missing > self._tuning.longest:
            return math.inf
        return cost + self.reading(source, missing, cost)

    def reading(self, source: str, missing: int, cost: float) -> float:
        """Expected cost of reading tokens that were missed, where a drafted one has this cost."""
        return missing * self._each.get(source, self._tuning.batched * cost)

    def probed(self, seq: int, source: str, length: int, cost: float, token: float) -> None:
        """A probe over a sequence of ``length`` tokens has run at ``cost``; that of a drafted token
        is ``token``.
        """
        self._saved -= cost
        missing = length - self._read.get((seq, source), 0)
        if missing > 0:
            each = max(0.0, cost - token) / missing
            was = self._each.get(source, each)
            self._each[source] = was + self._tuning.weight * (each - was)
        self.has_read(seq, source, length)


__all__ = ["ProbeSchedule", "ProbeTuning"]
