"""The one account of the rounds of a reply, for the engine, the chat, the shell and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from localspec.core.emitted import GRAMMAR

_PLACES = 512
"""Places of a draft that are counted: no drafter of ours has more, whatever a server says."""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Counts and times of one round of one request."""

    drafted: int
    verified: int
    accepted: int
    emitted: int
    draft_seconds: float
    verify_seconds: float
    seconds: float
    """The whole round."""
    source: str
    """Name of the drafter that was asked, also where it drafted nothing."""
    forced: int = field(default=0, kw_only=True)
    """Drafted tokens that a grammar forced, which `source` did not propose."""
    forced_accepted: int = field(default=0, kw_only=True)
    """Forced tokens that were accepted: all that were reached."""
    corrected: int = field(default=0, kw_only=True)
    """1 where the draft went on behind the accepted tokens, and the target otherwise."""
    probe_seconds: float = field(default=0.0, kw_only=True)
    """The part of `draft_seconds` that was the probe of another drafter."""


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """The contribution of one drafter; seconds alone where none of its guesses was drafted."""

    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def __add__(self, more: DrafterStats) -> DrafterStats:
        """Both contributions together."""
        return DrafterStats(
            self.drafted + more.drafted,
            self.verified + more.verified,
            self.accepted + more.accepted,
            self.seconds + more.seconds,
        )


@dataclass(slots=True)
class RoundCounts:
    """Running sums. ``accepted <= verified <= drafted``."""

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    emitted: int = 0
    judged_at: list[int] = field(default_factory=list)
    """By place in the draft: how often the accepted tokens came so far, and the draft went on. A
    tree may have several tokens there."""
    accepted_at: list[int] = field(default_factory=list)
    """By place: how often one was accepted."""
    by_drafter: dict[str, DrafterStats] = field(default_factory=dict)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, rounds: Iterable[RoundFigures]) -> Self:
        """The sums over these rounds."""
        found = cls()
        for done in rounds:
            found.add(done)
        return found

    def add(self, done: RoundFigures) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafted += done.drafted
        self.verified += done.verified
        self.accepted += done.accepted
        self.emitted += done.emitted
        self.draft_seconds += done.draft_seconds
        self.verify_seconds += done.verify_seconds
        self.seconds += done.seconds
        forced, kept = done.forced, done.forced_accepted
        if forced:
            self._credit(GRAMMAR, DrafterStats(forced, kept, kept))
        own, seconds = done.drafted - forced, done.draft_seconds - done.probe_seconds
        if own or seconds > 0:  # it may have computed guesses and refused them
            judged, accepted = done.verified - kept, done.accepted - kept
            self._credit(done.source, DrafterStats(own, judged, accepted, seconds))
        places = min(done.accepted + done.corrected, _PLACES)
        missing = [0] * (places - len(self.judged_at))
        self.judged_at += missing
        self.accepted_at += missing
        for i in range(places):
            self.judged_at[i] += 1
            self.accepted_at[i] += i < done.accepted

    def _credit(self, source: str, found: DrafterStats) -> None:
        self.by_drafter[source] = self.by_drafter.get(source, DrafterStats()) + found

    @property
    def per_position(self) -> tuple[float, ...]:
        """Acceptance at each place, given that it was judged."""
        return tuple(
            hit / judged for hit, judged in zip(self.accepted_at, self.judged_at, strict=True)
        )
