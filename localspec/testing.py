"""A target and a draft model that are tables: the whole loop runs on them, exactly and instantly.

Public: tests of drafters and verifiers written elsewhere may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from localspec.core.target import Work
from localspec.core.values import Logits, Scores, Tokens

Table = Callable[[Tokens], Logits]
"""Logits (V,) after the given tokens."""


class TableTarget:
    """A `Target` that looks its logits up. It keeps honest books on its pretended KV cache."""

    def __init__(self, table: Table, capacity: int = 1 << 20, leaves: int = 256) -> None:
        self.table = table
        self.capacity = capacity
        self.leaves = leaves
        self.cache: dict[int, list[int]] = {}
        self._last: dict[int, Work] = {}

    def read(self, seq: int, tokens: Tokens) -> None:
        """Append to the cache: a prompt less its last token, say."""
        self.cache.setdefault(seq, []).extend(tokens)

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens."""
        self._last.pop(seq, None)
        del self.cache.setdefault(seq, [])[length:]

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """Row 0 after the pending token, row 1 + i after node i."""
        self._last = {w.seq: w for w in work}
        return [Scores(np.stack([self._row(w, i) for i in range(-1, len(w.draft))])) for w in work]

    def _row(self, work: Work, node: int) -> Logits:
        return self.table([*self.cache.get(work.seq, ()), work.pending, *work.draft.prefix(node)])

    def keep(self, seq: int, path: Sequence[int]) -> None:
        """Take the pending token and the path over into the cache."""
        work = self._last.pop(seq)
        self.cache[seq] += [work.pending, *(int(work.draft.tokens[i]) for i in path)]

    def length(self, seq: int) -> int:
        """Tokens held."""
        return len(self.cache[seq])

    def audit(self, seq: int) -> None:
        """A list is as long as it is."""


class TableModel:
    """A `DraftModel` that looks its logits up."""

    def __init__(self, table: Table, capacity: int = 1 << 20) -> None:
        self.table = table
        self.capacity = capacity
        self.vocabulary = len(table([]))
        self.cache: dict[int, list[int]] = {}

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        """Append, and look up."""
        found = []
        for seq, tokens, rows in work:
            cache = self.cache.setdefault(seq, [])
            cache.extend(tokens)
            ends = range(len(cache) - rows + 1, len(cache) + 1)
            found.append(np.array([self.table(cache[:end]) for end in ends]))
        return found

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first tokens."""
        del self.cache.setdefault(seq, [])[length:]
