"""Sequences of a KV cache that hold the branches of a tree after a common beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localspec.llama.batch import Batch
from localspec.llama.library import c_api
from localspec.llama.tree_layout import Tree


class BranchSequences:
    """Sequences 1, 2 and so on, each with the first tokens of sequence 0."""

    def __init__(self, memory: Any, count: int, place: Callable[[int], int]) -> None:
        """``place`` gives the position after so many tokens of sequence 0."""
        self._memory = memory
        self._place = place
        self.shared = [0] * count
        """Tokens of sequence 0 that each branch's sequence shares, from the first on; after a tree
        more than that, until `cut`."""
        self._stem_end: int | None = None
        """Where the tree of the last pass begins, until `cut`."""

    def share(self, branch: int, length: int) -> None:
        """Let a branch's sequence hold the first ``length`` tokens of sequence 0."""
        shared = self.shared[branch]
        if shared < length:
            begin, end = self._place(shared), self._place(length)
            c_api.llama_memory_seq_cp(self._memory, 0, 1 + branch, begin, end)
            self.shared[branch] = length

    def place(self, batch: Batch, tree: Tree, start: int, stem: int) -> None:
        """Set the sequences of a pass over ``stem`` tokens of sequence 0 from ``start`` on, and a
        tree after them.
        """
        everywhere = [*range(max(1, len(tree.leaves)))]
        for branch in everywhere[:-1]:
            self.share(branch, start)
        for i, seqs in enumerate((*[everywhere] * stem, *tree.below)):
            batch.seqs[i, : len(seqs)] = seqs
            batch.seq_counts[i] = len(seqs)
        self._stem_end = start + stem
        for branch in everywhere[:-1]:
            self.shared[branch] = start + stem + len(tree.tokens)

    def cut(self, length: int) -> None:
        """Follow sequence 0, which now has ``length`` tokens: the tree after them is gone."""
        common = length if self._stem_end is None else min(length, self._stem_end)
        self._stem_end = None
        for branch, shared in enumerate(self.shared):
            if shared > common:
                c_api.llama_memory_seq_rm(self._memory, 1 + branch, self._place(common), -1)
                self.shared[branch] = common
