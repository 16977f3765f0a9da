"""No drafter bets more than it has won.

Estimates are wrong when texts change. So each drafter has a stake, the plain tokens that it may
lose, and a draft is no longer than the stake would bear if all of it were rejected. That bounds the
loss whatever happens, and lets drafts grow where they succeed.
"""

from __future__ import annotations

_FRESH, _MOST = 2.2, 8.0
"""What a drafter may lose at the start of a reply if it won as much before, and the most that it
may ever lose at once."""
_INTEREST = 0.012
"""What every emitted token adds: about what bad luck may cost in the long run."""
_REGAIN = 0.4
"""What one token adds that was only in mind and would have stood, up to a fresh start."""

Key = tuple[str, str]
"""(Drafter, kind of sampling)."""


class LossBudget:
    """In plain tokens, by drafter and kind of sampling."""

    def __init__(self) -> None:
        self._now: dict[Key, float] = {}
        self._won: dict[Key, float] = {}
        """In all, ever."""

    def of(self, key: Key) -> float:
        """What it may lose now."""
        return self._now.get(key, _FRESH)

    def new_reply(self) -> None:
        """What was won in one text is not thrown after another."""
        for key, won in self._won.items():
            self._now[key] = min(won, _FRESH)

    def settle(self, key: Key, emitted: int, won: float) -> None:
        """A round emitted tokens; the drafter won or lost against plain decoding."""
        gain = won + _INTEREST * emitted
        self._now[key] = min(_MOST, self.of(key) + gain)
        self._won[key] = self._won.get(key, _FRESH) + gain

    def would_have(self, key: Key, stood: bool) -> None:
        """A token that was not drafted would have stood, or not."""
        if self.of(key) < _FRESH:
            self._now[key] = min(_FRESH, self.of(key) + (_REGAIN if stood else -_REGAIN))
