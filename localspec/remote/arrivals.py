"""When the tokens of a reply arrived, and what follows for the speed of its engine."""

from __future__ import annotations

_TOGETHER_SECONDS = 0.002
"""Tokens that arrive closer than this came in one piece: nothing is known of the time between."""
_FEWEST = 8
"""Fewest pieces whose arrival tells a speed: between fewer, chance decides."""


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
