"""Trees from a head: it reads each node with its own guess of the target's state before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from localspec.core.plan import Budget
from localspec.core.values import ROOT, Distribution, Draft, Logits, Proposal
from localspec.drafters.base import Ask
from localspec.drafters.heads.eagle import HeadModel, HiddenStates, PairReader, States
from localspec.drafters.heads.head_drafter import HeadDrafter
from localspec.drafters.model.interface import CANNOT, DraftModel
from localspec.drafters.model.tree import Trees
from localspec.drafters.model.tree_builder import Slot, TreeBuilder, ranked

_CANDIDATES = 8
"""Children of one node among which reranking chooses."""


class TreeReader(PairReader, Protocol):
    """A head on whose pairs trees can grow."""

    @property
    def branches(self) -> int:
        """Pairs that a level may have beyond the first."""
        ...

    def grow(
        self, tokens: Sequence[int], states: States, above: Sequence[int]
    ) -> tuple[Logits, States]:
        """Append a level of a tree to sequence 0, each pair behind one of the level before."""
        ...

    def prune(self) -> None:
        """Forget the tree."""
        ...


class GrowingModel(DraftModel, Protocol):
    """A draft model that reads several continuations of sequence 0, level by level."""

    @property
    def breadth(self) -> int:
        """Nodes of a level that it can read."""
        ...

    def grow(self, tokens: Sequence[int], above: Sequence[int]) -> Logits:
        """(n, V) what follows the nodes of the next level of a tree after the tokens of sequence 0.

        ``above`` are the numbers of their parents among the nodes of the last call; ignored in the
        first one after `prune`. The rows are valid until the next call.

        Raises:
            ContextFullError, Interrupted, DecodeError: the tree is then gone.
        """
        ...

    def prune(self) -> None:
        """Forget the tree, if there is one."""
        ...


class HeadTreeModel(HeadModel):
    """A `GrowingModel` of a head."""

    def __init__(self, reader: TreeReader, states: HiddenStates, vocabulary: int) -> None:
        """See `HeadModel`."""
        super().__init__(reader, states, vocabulary)
        self._tree = reader
        self._level: States | None = None
        """(n, width) states guessed for the nodes of the last level."""

    @property
    def breadth(self) -> int:
        """Nodes of a level that it can read."""
        return 1 + self._tree.branches

    def grow(self, tokens: Sequence[int], above: Sequence[int]) -> Logits:
        """See `GrowingModel`."""
        if self._level is None:
            cached = self._sequences[0]
            root: States = cached.own[len(cached.tokens) - 1]
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

    Each level reads those nodes of the level before whose paths are most probable, and takes down
    candidates for the children of each (section 4.1, expansion). When no further level pays, the
    candidates of largest path probability stay, as many as there may be nodes (section 4.2,
    reranking): a deep place is taken from a doubtful path and given to a rival on a surer one.

    Reranking drops a node by the probability of its own token. Of tokens that were drawn from q
    those that stay would no longer be distributed as q says, and rejection sampling would be
    biased. So nothing is drawn: candidates are the best of q, the whole tree follows from the text,
    and both verifiers are exact for it, whatever its shape. Trees of drawn or coupled tokens are
    kept less often, too (measured, see docs/drafters.md).
    """

    def __init__(
        self, model: GrowingModel, favoured: Proposal, name: str, deepest: int | None = None
    ) -> None:
        """See `HeadDrafter`, which drafts where the budget is for a single leaf."""
        chains = HeadDrafter(model, favoured, name, deepest)
        super().__init__(chains, model.vocabulary, favoured, name)
        self._head = model
        self._deepest = deepest
        self._root: Logits | None = None
        """(V,) what follows the text, of the tree being built."""
        self._read: list[int] = []
        """Nodes that the head read in the last level."""

    def _leaves(self, budget: Budget) -> int:
        return min(budget.leaves, self._head.breadth)

    def _depth(self, ask: Ask) -> int:
        # The nodes of the last level are never read by the head itself.
        depth = min(super()._depth(ask), self._head.capacity - len(ask.tokens) + 1)
        return depth if self._deepest is None else min(depth, self._deepest)

    def _proposal(self, ask: Ask) -> Proposal:
        del ask
        return Proposal.DETERMINISTIC

    def _ready(self, ask: Ask) -> bool:
        if self.problem is None:
            self._root = self._chains.logits(ask.seq, ask.tokens)
        return self.problem is None and self._root is not None

    def _one(self, ask: Ask) -> Draft:
        try:
            return super()._one(ask)
        finally:
            self._head.prune()

    def _grow(self, tree: TreeBuilder, depth: int) -> None:
        frontier, pace = [ROOT], tree.ask.pace
        width = tree.ask.budget.nodes // depth
        for _ in range(depth):
            level = self._distributions(tree, frontier)
            if not level:
                break
            found = self._candidates(tree, level)
            best, above = found[:width], sum(tree.score(node) for node in frontier)
            tree.confidences.append(min(1.0, sum(slot.score for slot, _, _ in best) / above))
            if not pace.more(tree.confidences):
                tree.refused = [(slot.parent, token) for slot, token, _ in best]
                break
            frontier = tree.add(found)[: min(width, self._head.breadth)]
            if not pace.further(tree.confidences):
                break
        tree.keep(best_of(tree, width * tree.levels, self._leaves(tree.ask.budget)))

    def _candidates(
        self, tree: TreeBuilder, level: dict[int, Distribution]
    ) -> list[tuple[Slot, int, Distribution]]:
        """Children for the nodes that were read, the most probable paths first."""
        ask, found = tree.ask, []
        for node, q in level.items():
            order = ranked(q, ask, ask.position, node, tree.proposal, _CANDIDATES)
            shares = np.sort(q.probs)[::-1][:_CANDIDATES].tolist()
            for rank, (token, share) in enumerate(zip(order, shares, strict=False)):
                found.append((Slot(node, rank, tree.score(node) * share), token, q))
        found.sort(key=lambda candidate: -candidate[0].score)
        return found

    def _distributions(self, tree: TreeBuilder, frontier: Sequence[int]) -> dict[int, Distribution]:
        if frontier == [ROOT]:
            assert self._root is not None  # or it was not ready
            rows = self._root[None]
        else:
            above = [self._read.index(tree.parents[node]) for node in frontier]
            try:
                rows = self._head.grow([tree.tokens[node] for node in frontier], above)
            except CANNOT:
                return {}
        self._read = [*frontier]
        return self._following(tree, zip(frontier, rows, strict=True))


def best_of(tree: TreeBuilder, nodes: int, leaves: int) -> list[int]:
    """The nodes of largest path probability, ascending: a tree of at most ``nodes`` and ``leaves``.

    No path is more probable than its beginning, so a node's parent always stays with it.
    """
    kept: set[int] = set()
    inner = {ROOT}
    ends = 0
    for node in sorted(range(len(tree.tokens)), key=lambda i: (-tree.scores[i], i)):
        if len(kept) == nodes:
            break
        parent = tree.parents[node]
        if parent not in kept | {ROOT}:
            continue  # there was a leaf too many above
        grows = parent in inner
        if grows and ends == leaves:
            continue
        ends += grows
        inner.add(parent)
        kept.add(node)
    return sorted(kept)
