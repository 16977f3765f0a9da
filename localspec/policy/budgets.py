"""What may be lost, and what for: the budget of each reply, that of the session, and looks.

A conservative bandit (Wu et al. 2016) does what looks best as long as it would still have the
promised share of what its baseline earns, here plain decoding, if the cautious case came true. What
does not pay by all that is believed is not for the reply, but to find out: the session pays for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

START = 1.5
"""Rejected drafts of one token that a reply may lose from its first one on."""
SHARE = 0.02
"""Further tokens that it may lose, as a share of its tokens so far."""
COMPANY = 0.2
"""Further tokens that it may lose by drafts of all, as a share of its tokens so far: so it has five
sixths of the speed of plain decoding at least, where others gain."""
LOOKS = 0.2
"""Tokens that it may spend to find out from its first one on, and that the session may owe."""
SAVED = 0.008
"""Share of every round that the session saves for looks."""
AT_FIRST = 1.0
"""Savings at the start, in plain tokens."""
STALLED = 3.0
"""Times as long as believed from which on a probe or an answer may have been interrupted: another
program on the cores doubles a time."""
STALLS_FADE = 0.98
"""By which the slowest round counts for less with each one after it: half after 34."""
LONGEST = 256
"""Most rounds between two looks."""


@dataclass(slots=True)
class ReplyBudget:
    """The account of one reply, in plain tokens."""

    emitted: int = 0
    """Tokens of the reply so far."""
    own: float = 0.0
    """Tokens won on plain decoding, less those lost, but for drafts of all requests."""
    company: float = 0.0
    """Tokens that drafts of all requests brought, or lost."""
    shared: float = 0.0
    """What these brought the replies of the same rounds on average."""
    spent: float = 0.0
    """Tokens that probes took, of those lost."""
    answers: float = 0.0
    """Tokens that answers of drafters that copy took, of those lost."""
    rejected: float = 1.0
    """What a rejected draft of one token loses now, of a plain token at most."""

    @property
    def left(self) -> float:
        """Tokens that the reply can lose now and still be nearly as fast as plain decoding."""
        return self._granted + self.company

    @property
    def bears(self) -> float:
        """Tokens that it can lose now where all requests draft, and gain by it on average."""
        return self.left + COMPANY * self.emitted

    @property
    def left_for_all(self) -> float:
        """Tokens that it can lose now where all requests draft, if what that has brought were
        divided among them: those that won by it may have ended, and others have begun.
        """
        return self._granted + self.shared

    @property
    def left_for_copies(self) -> float:
        """Tokens that it can lose now by copies of others: what drafts of all have lost, which
        `bears` limits, is no reason against them, nor what answers may lose that win nothing.
        """
        answers = min(self.answers, LOOKS + SHARE * self.emitted)
        return self._granted + answers + max(0.0, self.company)

    @property
    def left_for_answers(self) -> float:
        """Tokens that it can lose now to look for matches, whatever those that failed have lost."""
        won = self.own + self.company + self.answers
        return LOOKS + SHARE * self.emitted + max(0.0, won) - self.answers

    @property
    def spare(self) -> float:
        """Tokens that it can still spend to find out, whatever its drafts have lost."""
        won = self.own + self.company
        return LOOKS + SHARE * self.emitted + max(0.0, won + self.spent) - self.spent

    def settle(
        self,
        emitted: int,
        gain: float,
        company: float = 0.0,
        shared: float = 0.0,
        answers: float = 0.0,
    ) -> None:
        """A round emitted tokens, with this gain on plain decoding, ``company`` of it by drafts of
        all requests, which brought each of them ``shared`` on average, and ``answers`` lost.
        """
        self.emitted += emitted
        self.own += gain - company
        self.company += company
        self.shared += shared
        self.answers += answers

    @property
    def _granted(self) -> float:
        return START * self.rejected + SHARE * self.emitted + self.own


@dataclass(slots=True)
class SessionBudget:
    """The account of a session, in plain tokens."""

    left: float = field(default_factory=lambda: AT_FIRST)

    def save(self, rounds: float) -> None:
        """Plain decoding would have made so many rounds in the time, for all requests together."""
        self.left += SAVED * rounds

    def spend(self, tokens: float) -> None:
        """A look has cost that. The debt is bounded: where costs are in doubt, so are debts."""
        self.left = max(-LOOKS, self.left - tokens)


@dataclass(slots=True)
class Charge:
    """What is charged of the time that a drafter took. Where that is far longer than believed, the
    machine may have stalled: it counts in full where an earlier round was as slow, also if that is
    so now and then only, or a drafter whose belief such times do not raise may take them for ever.
    """

    _round: int = -1
    _times: float = 0.0
    """How often what was believed the slowest one of that round took."""
    _before: float = 0.0
    """The same of the slowest round before it, of those with any; older ones count for less."""

    def of(self, took: float, believed: float, now: int) -> float:
        """What is charged, in the unit of both; all of it where nothing was believed."""
        if believed <= 0:
            return took
        if now != self._round:
            self._before = max(self._times, STALLS_FADE * self._before)
            self._round, self._times = now, 0.0
        times = took / believed
        self._times = max(self._times, times)
        return believed * min(times, max(STALLED, self._before))


@dataclass(slots=True)
class Look:
    """Schedules checks of a belief that acting on it would never correct; intervals double."""

    first: int
    """Rounds until the first look."""
    since: int
    """The round from which on that is counted."""
    wait: int = 0
    longest: int = LONGEST
    """Most rounds between two."""
    made: int = 0
    useful: int = 0
    """Looks so far, and those after which something else was done."""
    open: int = 0
    """Looks of the last round that had any, as long as they may turn out to be useful."""
    _counted: int = -1
    """The last round of looks, or that was acted on: it changes the interval once."""
    _postponed: int = -1
    """The last round in which it was postponed."""
    _latest: int | None = None
    """The round by which the next look is due, where a text has begun since the last one."""

    def restart(self, now: int) -> None:
        """A new text: begin with the first interval, longer the less looks were of use. Only the
        first text after a look puts the next one off: if all did, it might never come.
        """
        first = min(LONGEST, round(self.first / self.chance))
        if self._latest is None:
            self._latest = now + first
        self.wait, self.since = first, min(now, self._latest - first)

    def is_due(self, now: int) -> bool:
        """Whether as much is unseen as was seen."""
        return now - self.since >= self.wait or now == self._postponed

    def done(self, now: int) -> None:
        """A check is made in this round; several requests may make one each."""
        if now != self._counted:
            self._counted, self.open, self._latest = now, 0, None
            self.wait, self.since = min(self.longest, max(self.first, 2 * self.wait)), now
        self.made += 1
        self.open += 1

    def postpone(self, now: int) -> None:
        """A look that is due would not be worth it: ask again after the first interval. Others of
        this round are asked, too: it may be worth it for one of them.
        """
        self.since, self._postponed = now - self.wait + self.first, now

    def acted_on(self, now: int) -> None:
        """What it showed is acted on, which shows as much as a look: with every round the next one
        is due sooner afterwards, down to twice the first interval.
        """
        if now == self._counted:
            return
        self._counted, self._latest = now, None
        self._count_useful()
        self.wait, self.since = max(min(self.wait, 2 * self.first), self.wait - 1), now

    def settled(self, now: int) -> None:
        """What it showed is acted on, which measures it: begin with the first interval."""
        self._count_useful()
        self._latest = None
        self.restart(now)

    def _count_useful(self) -> None:
        self.useful += self.open
        self.open = 0

    @property
    def chance(self) -> float:
        """Probability that the next look is useful, by the rule of succession."""
        return (1 + self.useful) / (1 + self.made)
