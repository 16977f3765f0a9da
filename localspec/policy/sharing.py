"""How several requests share the extra time of a pass that drafts make wider.

All requests of a round have one width, so a draft costs time for all of them, however many draft.
A request that drafts alone pays for the whole pass; when all draft, each pays for its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.policy.gain import Curve


@dataclass(frozen=True, slots=True)
class SharingTuning:
    """Constants of `Sharing`."""

    weight: float = 0.25
    """Weight of a round in how often a request drafts."""
    unknown: float = 0.5
    """How often a request drafts of which nothing is known."""


class Sharing:
    """Expects how many of the running requests draft, from how often each of them did."""

    def __init__(self, tuning: SharingTuning = SharingTuning()) -> None:
        self._tuning = tuning
        self._often: dict[int, float] = {}
        self._running: Sequence[int] = ()

    def among(self, running: Sequence[int]) -> None:
        """The sequences of the next round."""
        self._running = running
        self._often = {seq: self._often.get(seq, self._tuning.unknown) for seq in running}

    def drafted(self, seq: int, drafted: bool) -> None:
        """Whether a request drafted in a round."""
        before = self._often.get(seq, self._tuning.unknown)
        self._often[seq] = before + self._tuning.weight * (drafted - before)

    def charged(self, curve: Curve, seq: int) -> Curve:
        """``curve`` for one request: it and those that are expected to draft too share the time."""
        if len(self._running) < 2:
            return curve
        others = sum(self._often[other] for other in self._running if other != seq)
        return 1 + (curve - 1) * (len(self._running) / (1 + others))


__all__ = ["Sharing", "SharingTuning"]
