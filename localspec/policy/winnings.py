"""Gains of drafters that had read their prompts: they decide whether to read the next one."""

from __future__ import annotations

from dataclasses import dataclass

Kind = tuple[str, str, int]
"""(Drafter, kind of sampling, requests that run at once)."""


@dataclass(frozen=True, slots=True)
class WinningsTuning:
    """Constants of `Winnings`, in tokens."""

    prior: float = 150.0
    """Tokens that an expectation counts for against what was won."""
    decay: float = 0.9
    """Weight that earlier replies keep with each new one."""
    known: float = 200.0
    """Tokens from which on what was won is trusted."""


class Winnings:
    """Tokens won by each drafter, by kind of sampling and size of the batch."""

    def __init__(self, tuning: WinningsTuning = WinningsTuning()) -> None:
        self._tuning = tuning
        self._won: dict[Kind, tuple[float, float]] = {}
        """(Tokens won, tokens emitted), decayed."""

    def learn(self, kind: Kind, won: float, emitted: int) -> None:
        """A reply whose prompt the drafter had read has ended."""
        before, tokens = self._won.get(kind, (0.0, 0.0))
        decay = self._tuning.decay
        self._won[kind] = decay * before + won, decay * tokens + emitted

    def expected(self, kind: Kind, prior: float) -> float:
        """Tokens that the drafter is expected to win for each one emitted, where ``prior`` was
        expected without any experience.
        """
        won, tokens = self._won.get(kind, (0.0, 0.0))
        return (self._tuning.prior * prior + won) / (self._tuning.prior + tokens)

    def known(self, kind: Kind) -> bool:
        """Whether that rests on experience."""
        return self._won.get(kind, (0.0, 0.0))[1] >= self._tuning.known


__all__ = ["Kind", "Winnings", "WinningsTuning"]
