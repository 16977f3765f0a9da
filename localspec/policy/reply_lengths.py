"""How many tokens a reply is expected to have: what a drafter reads in advance must be won back."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.plan import RequestState


@dataclass(frozen=True, slots=True)
class ReplyLengthsTuning:
    """Constants of `ReplyLengths`, in tokens."""

    usual: float = 96.0
    """Length of a reply before any was seen."""
    weight: float = 0.15
    """Weight of a new reply in the usual length."""
    near: int = 40
    """A reply with no more than this left of its limit may have been ended by it."""


class ReplyLengths:
    """The usual length of replies, learnt from those that ended by themselves."""

    def __init__(self, tuning: ReplyLengthsTuning = ReplyLengthsTuning()) -> None:
        self._tuning = tuning
        self._usual = tuning.usual
        self._last: dict[int, RequestState] = {}

    def planned(self, state: RequestState) -> None:
        """A round of the reply is planned."""
        self._last[state.seq] = state

    def begin(self, seq: int) -> None:
        """Another reply begins in the sequence: the last one has ended."""
        last = self._last.pop(seq, None)
        if last is None or (last.left <= self._tuning.near and last.emitted < self._usual):
            return
        self._usual += self._tuning.weight * (last.emitted - self._usual)

    def expected(self, state: RequestState) -> float:
        """Tokens that are still to come: replies of any length are as likely to go on."""
        return min(float(state.left), self._usual)


__all__ = ["ReplyLengths", "ReplyLengthsTuning"]
