"""The shape of a draft tree, as llama.cpp needs it: one sequence for each leaf."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localspec.core.values import ROOT, Draft, Ids


@dataclass(frozen=True, slots=True)
class Tree:
    """A draft, and which sequences its nodes belong to.

    Leaf 0 is the first that a walk finds which always takes the first child: the best path comes
    first, so that it lies in one piece in sequence 0 and is the cheapest to keep.
    """

    tokens: Ids
    depths: Ids
    """(n,) 0 for children of the pending token."""
    leaves: tuple[int, ...]
    """Nodes without children."""
    below: tuple[tuple[int, ...], ...]
    """(n,) numbers of the leaves at or below each node, ascending."""

    @property
    def depth(self) -> int:
        """Nodes on the longest path."""
        return int(self.depths.max()) + 1 if len(self.depths) else 0


def tree_of(draft: Draft) -> Tree:
    """The tree that a draft is."""
    n = len(draft)
    depths = np.zeros(n, np.int32)
    for i in range(n):  # parents come before children
        parent = int(draft.parents[i])
        depths[i] = 0 if parent == ROOT else depths[parent] + 1
    inner = {int(p) for p in draft.parents}
    leaves = tuple(_in_order(draft, inner))
    below: list[list[int]] = [[] for _ in range(n)]
    for number, leaf in enumerate(leaves):
        node = leaf
        while node != ROOT:
            below[node].append(number)
            node = int(draft.parents[node])
    return Tree(draft.tokens, depths, leaves, tuple(tuple(numbers) for numbers in below))


def _in_order(draft: Draft, inner: set[int]) -> list[int]:
    """Leaves in the order of a walk that takes first children first."""
    found: list[int] = []
    waiting = draft.children(ROOT)[::-1]
    while waiting:
        node = waiting.pop()
        if node in inner:
            waiting += draft.children(node)[::-1]
        else:
            found.append(node)
    return found
