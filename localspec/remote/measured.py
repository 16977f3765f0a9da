"""Figures of a remote engine from timed replies, each with its clock, its least length and its
doubt; and what the arrival of tokens tells of its speed.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.core.events import Clock, Stats

LEAST_TOKENS, LEAST_SECONDS = 16, 0.05
"""Tokens and seconds of all replies of a workload together, below which no speed is given."""
ENOUGH_SECONDS = 0.5
"""Seconds below which a comparison is in doubt."""
_EVEN = 1.5
"""Plain replies of one workload that differ by more than this were not made undisturbed."""
_PLAIN_NOISE = 1.1
"""By so much may a round without drafts take longer than one with drafts, by chance."""

_TOGETHER_SECONDS = 0.002
"""Tokens that arrive closer than this came in one piece: nothing is known of the time between."""
_FEWEST = 8
"""Fewest pieces whose arrival tells a speed: between fewer, chance decides."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One reply."""

    first_seconds: float
    """Seconds from the request to the first token."""
    seconds: float
    """Seconds from the request to the last token."""
    stats: Stats


@dataclass(frozen=True, slots=True)
class RemoteMeasured:
    """One workload at one temperature."""

    workload: str
    temperature: float
    prompts: int
    tokens: int
    clock: Clock | None
    """What the speeds were read from; None where nothing was measured."""
    speed: float | None
    """All tokens per all seconds; None where there were too few."""
    first_seconds: float | None
    """Median over the prompts."""
    ratio: float | None
    """Speed relative to plain decoding, measured alternately by the same clock; None where nothing
    can be plain, or too little was measured."""
    doubt: str | None
    """Why the ratio may be wrong, or is not given; None where nothing speaks against it."""
    drafted: int
    verified: int
    """0 where the engine does not tell."""
    accepted: int
    rounds: int
    reported: bool
    """Whether the engine reports its speculation."""
    error: str | None = None
    """Why the workload could not be measured."""

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens of a round; None where the engine does not tell."""
        return self.tokens / self.rounds if self.reported and self.rounds else None

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens of the verified ones, or of the drafted ones where only those are
        told.
        """
        of = self.verified or self.drafted
        return self.accepted / of if self.reported and of else None


Pair = tuple[Timed, Timed | None]


def measured(workload: str, temperature: float, pairs: Sequence[Pair]) -> RemoteMeasured:
    """The figures of a workload."""
    timed = [one for one, _ in pairs]
    plain = [other for _, other in pairs if other is not None]
    clock: Clock = "request"
    if all(one.stats.clock == "engine" for one in timed + plain):
        clock = "engine"
    speed, against = _speed(timed, clock), _speed(plain, clock)
    ratio = speed / against if speed is not None and against is not None else None
    rounds = sum(one.stats.rounds for one in timed)
    reported = bool(timed) and all(one.stats.speculation.state != "unknown" for one in timed)
    tokens = sum(one.stats.emitted for one in timed)
    drafted = sum(one.stats.drafted for one in timed)
    doubt = None
    if ratio is not None:
        most = tokens / rounds if reported and drafted and rounds else None
        doubt = _doubt(timed, plain, clock)
        if most is not None and ratio > most * _PLAIN_NOISE:
            ratio = None
            doubt = f"its rounds of {most:.1f} tokens cannot be so much faster than plain ones"
    return RemoteMeasured(
        workload=workload,
        temperature=temperature,
        prompts=len(pairs),
        tokens=tokens,
        clock=clock if timed else None,
        speed=speed,
        first_seconds=statistics.median(one.first_seconds for one in timed) if timed else None,
        ratio=ratio,
        doubt=doubt,
        drafted=drafted,
        verified=sum(one.stats.verified for one in timed),
        accepted=sum(one.stats.accepted for one in timed),
        rounds=rounds,
        reported=reported,
    )


def failed(workload: str, temperature: float, pairs: Sequence[Pair], error: str) -> RemoteMeasured:
    """The figures of a workload that ended with an error, as far as it came."""
    return replace(measured(workload, temperature, pairs), error=error)


def _seconds(replies: Sequence[Timed], clock: Clock) -> float:
    if clock == "engine":
        return sum(one.stats.decode_seconds for one in replies)
    return sum(one.seconds for one in replies)


def _speed(replies: Sequence[Timed], clock: Clock) -> float | None:
    """All tokens per all seconds; None where there are too few of either."""
    tokens, seconds = sum(one.stats.emitted for one in replies), _seconds(replies, clock)
    enough = tokens >= LEAST_TOKENS and seconds >= LEAST_SECONDS
    return tokens / seconds if enough else None


def _doubt(replies: Sequence[Timed], plain: Sequence[Timed], clock: Clock) -> str | None:
    """Why a ratio may be wrong."""
    if min(_seconds(replies, clock), _seconds(plain, clock)) < ENOUGH_SECONDS:
        return f"less than {ENOUGH_SECONDS:g} s were measured"
    speeds = [
        one.stats.emitted / seconds
        for one in plain
        if one.stats.emitted and (seconds := _seconds([one], clock)) > 0
    ]
    if speeds and min(speeds) * _EVEN < max(speeds):
        return f"plain replies alone differed {max(speeds) / min(speeds):.1f} times in speed"
    return None


class Arrivals:
    """The pieces in which a reply arrives.

    A server, a network or this end when it is busy may hold tokens back and let them through at
    once. So tokens are never divided by the time within a piece: those of the first piece were made
    before the clock starts, and count for nothing.
    """

    def __init__(self, began: float) -> None:
        """The request was sent at ``began``."""
        self.began = self.first = self.last = began
        self._pieces = self._in_first = self._tokens = 0

    def add(self, tokens: int, now: float) -> None:
        """Note tokens that arrive now."""
        if not self._pieces:
            self.first = now
        if not self._pieces or now - self.last >= _TOGETHER_SECONDS:
            self._pieces += 1
        self.last = now
        self._tokens += tokens
        if self._pieces == 1:
            self._in_first += tokens

    @property
    def span(self) -> float:
        """Seconds from the first token to the last."""
        return self.last - self.first

    @property
    def decoding(self) -> float | None:
        """Seconds that all tokens took, as the ones behind the first piece did; None where they
        came in too few pieces to tell.
        """
        behind = self._tokens - self._in_first
        if self._pieces < _FEWEST or behind <= 0:
            return None
        return self.span * self._tokens / behind
