"""Loss budget per drafter: bounds the time that rejected drafts may cost.

Estimates are wrong when texts change. So each drafter has a budget of plain tokens that it may
lose, and a draft is no longer than the budget allows if all of it were rejected. That bounds the
loss in every case, and lets drafts grow where they succeed.
"""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, str]
"""(Drafter, kind of sampling)."""


@dataclass(frozen=True, slots=True)
class LossTuning:
    """Constants of `LossBudget`, in plain tokens."""

    initial: float = 2.2
    """Budget at the start of a reply, if the drafter has gained as much before."""
    most: float = 8.0
    """Largest budget."""
    interest: float = 0.012
    """Added for every emitted token: the price of bad luck in the long run."""
    refund: float = 0.4
    """Refund per correct prediction that was not drafted, capped at the initial budget."""


class LossBudget:
    """Budgets in plain tokens, by drafter and kind of sampling."""

    def __init__(self, tuning: LossTuning = LossTuning()) -> None:
        self._tuning = tuning
        self._now: dict[Key, float] = {}
        self._gained: dict[Key, float] = {}
        """Sum of all gains and losses so far."""

    def of(self, key: Key) -> float:
        """Plain tokens that the drafter may lose now."""
        return self._now.get(key, self._tuning.initial)

    def new_reply(self) -> None:
        """At a new reply, cap every budget at its initial value."""
        for key, gained in self._gained.items():
            self._now[key] = min(gained, self._tuning.initial)

    def settle(self, key: Key, emitted: int, gain: float) -> None:
        """A round emitted tokens; ``gain`` on plain decoding is due to the drafter."""
        gain += self._tuning.interest * emitted
        self._now[key] = min(self._tuning.most, self.of(key) + gain)
        self._gained[key] = self._gained.get(key, self._tuning.initial) + gain

    def predicted(self, key: Key, accepted: bool) -> None:
        """A token that was not drafted would have been accepted, or not."""
        initial, refund = self._tuning.initial, self._tuning.refund
        if self.of(key) < initial:
            self._now[key] = min(initial, self.of(key) + (refund if accepted else -refund))


__all__ = ["Key", "LossBudget", "LossTuning"]
