"""Trees from a head: it reads each node with its own guess of the target's state before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localspec.drafters import Ask
from localspec.drafters.draft_model import CANNOT
from localspec.drafters.head import HeadDrafter, HeadModel, PairReader, Rows, States
from localspec.drafters.tree import RANKS, Growing, Trees, _order, _score
from localspec.noise import Stream
from localspec.values import ROOT, Budget, Distribution, Draft, Logits, Proposal


class TreeReader(PairReader, Protocol):
    """A head on whose pairs trees can grow."""

    @property
    def branches(self) -> int:
        """Pairs that a level may have beyond the first."""
        ...

    def grow(
        self, tokens: Sequence[int], states: Rows, above: Sequence[int]
    ) -> tuple[Logits, Rows]:
        """Append a level of a tree to sequence 0, each pair behind one of the level before."""
        ...

    def prune(self) -> None:
        """Forget the tree."""
        ...


class HeadTreeModel(HeadModel):
    """A head that can guess after several continuations of sequence 0 at once."""

    def __init__(self, reader: TreeReader, states: States, vocabulary: int) -> None:
        """See `HeadModel`."""
        super().__init__(reader, states, vocabulary)
        self._tree = reader
        self._level: Rows | None = None
        """(n, width) states guessed of the nodes of the last level."""

    @property
    def breadth(self) -> int:
        """Nodes of a level that it can read."""
        return 1 + self._tree.branches

    def grow(self, tokens: Sequence[int], above: Sequence[int]) -> Logits:
        """(n, V) what follows the nodes of the next level of a tree after what sequence 0 holds.

        ``above`` are the numbers of their parents among the nodes of the last call; ignored in the
        first one after `prune`. The rows are valid until the next call.

        Raises:
            ContextFullError, Interrupted, DecodeError: the tree is then gone.
        """
        if self._level is None:
            held = self._held[0]
            root: Rows = held.own[len(held.tokens) - 1]
            states, above = np.tile(root, (len(tokens), 1)), [0] * len(tokens)
        else:
            states = self._level[list(above)]
        logits, own = self._tree.grow(tokens, states, above)
        self._level = own.copy()
        return logits[:, : self.vocabulary]

    def prune(self) -> None:
        """Forget the tree, if there is one."""
        self._tree.prune()
        self._level = None


class HeadTreeDrafter(Trees):
    """Trees grown by expansion, then cut to the best nodes of all (Li et al. 2024, "EAGLE-2").

    Each level reads the nodes of the level before whose paths are most probable, and takes down
    candidates for the children of each (section 4.1, expansion). When no level pays any more, the
    candidates of largest path probability stay, as many as the levels have nodes (section 4.2,
    reranking): a deep place is taken from a doubtful path, and given to a rival of a surer one.
    """

    def __init__(
        self, model: HeadTreeModel, favoured: Proposal, name: str, deepest: int | None = None
    ) -> None:
        """See `HeadDrafter`."""
        chains = HeadDrafter(model, favoured, name, deepest)
        super().__init__(chains, model.vocabulary, favoured, name)
        self._head = model
        self._follower = chains
        self._deepest = deepest
        self._root: Logits | None = None
        """(V,) what follows the text, of the tree in the making."""
        self._read: list[int] = []
        """Nodes that the head read in the last level."""

    def follow(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """See `Follows`."""
        self._follower.follow(seq, tokens, upto)

    def _leaves(self, budget: Budget) -> int:
        return min(budget.leaves, self._head.breadth)

    def _depth(self, ask: Ask) -> int:
        room = self._head.capacity - len(ask.tokens) + 1
        depth = min(super()._depth(ask), room)
        return depth if self._deepest is None else min(depth, self._deepest)

    def _ready(self, ask: Ask) -> bool:
        if self._chains.trouble is not None:
            return False
        self._root = self._chains.logits(ask.seq, ask.tokens)
        return self._root is not None

    def _one(self, ask: Ask) -> Draft:
        try:
            return super()._one(ask)
        finally:
            self._head.prune()

    def _distributions(self, tree: Growing, frontier: Sequence[int]) -> dict[int, Distribution]:
        ask, so_far = tree.ask, tree.draft(self.name)
        processor = self._ranking(ask.processor)
        if frontier == [ROOT]:
            assert self._root is not None  # or it were not ready
            rows = self._root[None]
        else:
            above = [self._read.index(tree.parents[node]) for node in frontier]
            rows = self._head.grow([tree.tokens[node] for node in frontier], above)
        self._read = list(frontier)
        lookback = processor.lookback
        before = ask.tokens[-lookback:] if lookback else []
        return {
            node: processor(row, [*before, *so_far.prefix(node)] if lookback else before)
            for node, row in zip(frontier, rows, strict=True)
        }

    def _grow(self, tree: Growing, depth: int) -> None:
        import os
        if tree.proposal is Proposal.WITHOUT_REPLACEMENT or os.environ.get("PLAINTREE"):
            super()._grow(tree, depth)
            return
        pace, frontier = tree.ask.pace, [ROOT]
        width = max(1, tree.ask.budget.nodes // depth)
        for _ in range(depth):
            try:
                level = self._distributions(tree, frontier)
            except CANNOT:
                break
            above = sum(_score(tree, node) for node in frontier)
            here = self._candidates(tree, level)
            here.sort(key=lambda c: -c[3])
            tree.confidences.append(min(1.0, sum(c[3] for c in here[:width]) / above))
            if not pace.more(tree.confidences):
                break
            first = len(tree.tokens)
            for node, token, q, score in here:
                tree.parents.append(node)
                tree.tokens.append(token)
                tree.q.append(q)
                tree.scores.append(score)
            frontier = list(range(first, min(first + min(width, self._head.breadth), len(tree.tokens))))
            if not frontier or not pace.further(tree.confidences):
                break
        rerank(tree, width * len(tree.confidences), self._leaves(tree.ask.budget))

    def _candidates(self, tree, level):
        import os
        S = float(os.environ.get("KEYS", "0"))
        ask, found = tree.ask, []
        position = ask.position + len(tree.confidences)
        for node, q in level.items():
            tokens = _order(q, ask, position, node, tree.proposal)
            if S and tree.proposal is Proposal.COUPLED:
                keys = (np.log(q.probs) + ask.noise.gumbel(position, q.ids, Stream.SAMPLE)) / S
                keys = np.exp(keys - keys.max())
                shares = np.sort(keys / keys.sum())[::-1][:RANKS]
            else:
                shares = np.sort(q.probs)[::-1][:RANKS]
            found += [
                (node, int(token), q, _score(tree, node) * float(share))
                for token, share in zip(tokens, shares, strict=False)
            ]
        return found


def rerank(tree: Growing, nodes: int, leaves: int) -> None:
    order = sorted(range(len(tree.tokens)), key=lambda i: (-tree.scores[i], i))
    kept: set[int] = set()
    parents: set[int] = set()
    ends = 1
    for node in order:
        if len(kept) == nodes:
            break
        parent = tree.parents[node]
        if parent != ROOT and parent not in kept:
            continue
        if parent in parents:
            if ends == leaves:
                continue
            ends += 1
        parents.add(parent)
        kept.add(node)
    stay = sorted(kept)
    place = {node: i for i, node in enumerate(stay)} | {ROOT: ROOT}
    tree.parents = [place[tree.parents[node]] for node in stay]
    tree.tokens = [tree.tokens[node] for node in stay]
    tree.q = [tree.q[node] for node in stay]
    tree.scores = [tree.scores[node] for node in stay]
