"""When a parked drafter looks: by a schedule that backs off, and for no more than was saved up.

A look reads what the drafter has missed, which may be a whole long prompt. So one round in 100
is saved for looking, and a look that is expected to cost more than the savings waits. Small ones,
over a few tokens, are paid for by their schedule alone.
"""

from __future__ import annotations

from localspec.policy.loss_budget import Key

_AFTER = (4, 8, 24, 72, 256)
"""Rounds between looks; the last one repeats."""
_SHARE = 0.01
"""Of a plain round, saved every round."""
_FRESH, _MOST = 2.0, 8.0
"""Plain rounds saved at the start, and at most."""
_SMALL = 0.3
"""Plain rounds that a look may always cost."""
_BATCHED = 0.5
"""Cost of a token that is read with many others, by that of one alone, before it was measured."""
_WEIGHT = 0.3
_TRY_AFTER = (16, 32, 64, 128, 256)
"""Rounds between drafts that only a better machine would justify."""
_TRY_COSTS = 0.5
"""Plain rounds that must be saved for one."""


class Looks:
    """Of all drafters; costs are in plain rounds."""

    def __init__(self) -> None:
        self._saved = _FRESH
        self._schedule: dict[Key, tuple[int, int]] = {}
        """(Looks made so far, round of the next one)."""
        self._read: dict[tuple[int, str], int] = {}
        """Tokens of a sequence that a drafter has read."""
        self._each: dict[str, float] = {}
        """Cost of a token read in a look."""
        self._tries: dict[Key, tuple[int, int]] = {}
        """(Tries made, round of the next one)."""

    def new_reply(self, now: int) -> None:
        """Another text, from round ``now`` on: begin early again."""
        for key, (made, _) in self._schedule.items():
            self._schedule[key] = min(made, 1), now + _AFTER[0]

    def passed(self) -> None:
        """A round was made."""
        self._saved = min(_MOST, self._saved + _SHARE)

    def has_read(self, seq: int, source: str, length: int) -> None:
        """The drafter knows so many tokens of the sequence."""
        self._read[seq, source] = length

    def drafts(self, key: Key) -> None:
        """It is not parked; when it will be, begin early again."""
        self._schedule.pop(key, None)
        self._tries.pop(key, None)

    def may_try(self, key: Key, now: int) -> bool:
        """Whether to draft in round ``now`` though it does not pay as far as is known.

        The curve of a parked drafter is never seen again otherwise, and machines change.
        """
        _, due = self._tries.setdefault(key, (0, now + _TRY_AFTER[0]))
        return now >= due and self._saved >= _TRY_COSTS

    def tried(self, key: Key, now: int, drafted: bool, cost: float) -> None:
        """It has; what did not come to a draft is tried again at once."""
        self._saved = max(0.0, self._saved - max(0.0, cost))
        if drafted:
            made = min(self._tries.get(key, (0, 0))[0] + 1, len(_TRY_AFTER) - 1)
            self._tries[key] = made, now + _TRY_AFTER[made]

    def due(self, key: Key, now: int, lengths: dict[int, int], cost: float) -> bool:
        """Whether to look in round ``now``.

        ``lengths`` are those of the sequences; ``cost`` that of a drafted token.
        """
        made, due = self._schedule.setdefault(key, (0, now + _AFTER[0]))
        if now < due or self._expected(key[0], lengths, cost) > max(self._saved, _SMALL):
            return False
        made = min(made + 1, len(_AFTER) - 1)
        self._schedule[key] = made, now + _AFTER[made]
        return True

    def seldom(self, key: Key, now: int) -> None:
        """Its drafts never stand: no look in this text for long."""
        self._schedule[key] = len(_AFTER) - 1, now + _AFTER[-1]

    def _expected(self, source: str, lengths: dict[int, int], cost: float) -> float:
        missing = sum(n - self._read.get((seq, source), 0) for seq, n in lengths.items())
        return cost + missing * self._each.get(source, _BATCHED * cost)

    def looked(self, seq: int, source: str, length: int, cost: float) -> None:
        """A look has cost so much."""
        self._saved = max(0.0, self._saved - cost)
        missing = length - self._read.get((seq, source), 0)
        if missing > 0:
            each = cost / missing
            was = self._each.get(source, each)
            self._each[source] = was + _WEIGHT * (each - was)
        self.has_read(seq, source, length)
