"""A tree that grows on a sequence, level by level: which sequence holds the path to which node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.core.errors import DecodeError
from localspec.llama.library import c_api


class TreeSequences:
    """Sequence 0, and others for the paths that part from it.

    A node's first child goes on in its parent's sequence, further ones in sequences of their own,
    which hold the same path. The sequences of paths that end are used again. So each level is a
    pass over its own nodes alone, whatever the tree will look like. Only the cells behind the
    common beginning are copied, and that is a mark on them, not a copy of keys and values.
    """

    def __init__(self, memory: Any, branches: int) -> None:
        """``memory`` has ``branches`` sequences beyond 0. They must hold what sequence 0 does, as
        far as the tree's beginning, when they are used.
        """
        self._memory = memory
        self._all = range(1 + branches)
        self._used: set[int] = set()
        """Sequences that may hold something of the tree."""
        self._ends: list[int] = []
        """The sequence of each node of the last level."""
        self.depth = 0
        """Levels."""

    def sprout(self, base: int, above: Sequence[int]) -> list[int]:
        """Sequences for the nodes of the next level of a tree that begins at position ``base``.

        ``above`` are the numbers of their parents in the level before; 0 for the first level.

        Raises:
            DecodeError: there are more nodes than sequences.
        """
        parents = [self._ends[i] for i in above] if self.depth else [0] * len(above)
        free = [seq for seq in self._all if seq not in parents]
        if len(parents) - len(set(parents)) > len(free):
            raise DecodeError(f"a tree with more than {len(self._all)} nodes on one level")
        ends: list[int] = []
        for parent in parents:
            seq = parent
            if parent in ends:
                seq = free.pop(0)
                if seq in self._used:
                    c_api.llama_memory_seq_rm(self._memory, seq, base, -1)
                if self.depth:
                    c_api.llama_memory_seq_cp(self._memory, parent, seq, base, base + self.depth)
            ends.append(seq)
        self._ends = ends
        self._used.update(ends)
        self.depth += 1
        return ends

    def cut(self, base: int) -> None:
        """Forget the tree."""
        for seq in self._used:
            c_api.llama_memory_seq_rm(self._memory, seq, base, -1)
        self._used.clear()
        self._ends, self.depth = [], 0
