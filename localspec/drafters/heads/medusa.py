"""Medusa: one hidden state of the target, and a head for each of the next positions.

With N tokens in the request the target has read all but the pending one, and its state of the last
token that it read is stored: the one that the pending token was drawn from. From it head 0 predicts
the token after the pending one, at index N, and head i the one at N + i. No head sees what is
drafted before its place, so q is the same for every node of a depth (except for penalties, which do
depend on the path).
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.core.errors import UnreadyError
from localspec.core.values import Distribution, Extension, Logits, Proposal
from localspec.drafters.base import Ask
from localspec.drafters.heads.eagle import HiddenStates, States
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree import Trees
from localspec.drafters.model.tree_builder import RANKS, TreeBuilder

NAME = "medusa"
_BEHIND = 2
"""Distance from a token to the token whose state predicts it."""


class MedusaHeads(Protocol):
    """The heads of a model: each predicts one place."""

    @property
    def count(self) -> int:
        """Heads, each for one place further."""
        ...

    @property
    def vocabulary(self) -> int:
        """Ids that they guess among."""
        ...

    def guess(self, states: States, heads: int) -> Logits:
        """(heads, n, V) of the first ``heads`` for (n, width) states, valid until the next call."""
        ...


@dataclass(slots=True)
class _Held:
    """The state of one sequence."""

    length: int = 0
    """Tokens of it: there is no cache of them."""
    wanted: int = 1
    """Places that the next draft may have."""
    base: int = 0
    """Index of the token that the first of ``rows`` guesses."""
    rows: Logits | None = None
    """(places, V) of the draft being built."""


class MedusaModel:
    """A `DraftModel` of the heads: the logits after a drafted token are those of the next head."""

    capacity = sys.maxsize
    """There is no cache that could be full."""

    def __init__(self, heads: MedusaHeads, states: HiddenStates, vocabulary: int) -> None:
        """``vocabulary`` are the ids that the target has."""
        self._heads = heads
        self._states = states
        self._sequences: dict[int, _Held] = {}
        self.count = heads.count
        self.vocabulary = min(vocabulary, heads.vocabulary)

    def begins(self, seq: int) -> int:
        """Index of the first token that can be guessed from the states at hand."""
        return self._states.span(seq)[0] + _BEHIND

    def ready(self, seq: int, index: int, places: int) -> bool:
        """Whether the token at ``index`` can be guessed; if so, it will be with as many heads as
        there are ``places``, in one computation.
        """
        self._of(seq).wanted = max(1, min(places, self.count))
        first, end = self._states.span(seq)
        return first <= index - _BEHIND < end

    def row(self, seq: int, index: int) -> Logits:
        """(V,) of the token at ``index``: from the state for it where that is at hand, else by the
        next head of the draft being built.

        Raises:
            UnreadyError: there is neither.
        """
        cached, at = self._of(seq), index - _BEHIND
        first, end = self._states.span(seq)
        if first <= at < end:
            rows = self._heads.guess(self._states.rows(seq, at, at + 1), cached.wanted)[:, 0]
            cached.base, cached.rows = index, rows if len(self._sequences) == 1 else rows.copy()
        if cached.rows is None or not 0 <= index - cached.base < len(cached.rows):
            raise UnreadyError("the target's states are not at hand")
        found: Logits = cached.rows[index - cached.base, : self.vocabulary]
        return found

    def extend(self, work: Sequence[Extension]) -> list[Logits]:
        """Append tokens, see `DraftModel`.

        Raises:
            UnreadyError: the target's states of the tokens before are not at hand.
        """
        ends = [self._of(seq).length + len(tokens) for seq, tokens, _ in work]
        found = [
            self.row(seq, end)[None] if rows == 1 else self._known(seq, end, rows)
            for (seq, _, rows), end in zip(work, ends, strict=True)
        ]
        for (seq, _, _), end in zip(work, ends, strict=True):
            self._of(seq).length = end
        return found

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        cached = self._sequences.get(seq)
        if cached is None or length >= cached.length:
            return
        cached.length = length
        if length < cached.base:  # what it was guessed after is not there any more
            cached.rows = None
        if length == 0:
            del self._sequences[seq]

    def _of(self, seq: int) -> _Held:
        return self._sequences.setdefault(seq, _Held())

    def _known(self, seq: int, index: int, rows: int) -> Logits:
        """(rows, V) of the tokens up to ``index``, each by head 0."""
        if rows == 0:
            return np.empty((0, self.vocabulary), np.float32)
        end = index - _BEHIND + 1
        begin, (first, last) = end - rows, self._states.span(seq)
        if not first <= begin < end <= last:
            raise UnreadyError("the target's states are not at hand")
        found: Logits = self._heads.guess(self._states.rows(seq, begin, end), 1)[0].copy()
        return found[:, : self.vocabulary]


class MedusaChains(ChainDrafter):
    """The best path through the heads' guesses, or a draw from each (Cai et al. 2024)."""

    reads_forced = False

    def __init__(self, model: MedusaModel, favoured: Proposal) -> None:
        """See `ChainDrafter`."""
        super().__init__(model, favoured, NAME)
        self._heads = model

    def prepare(self, ask: Ask) -> bool:
        """See `ChainDrafter`."""
        places = min(ask.budget.depth, ask.budget.nodes)
        return super().prepare(ask) and self._heads.ready(ask.seq, ask.position, places)

    def _depth(self, ask: Ask) -> int:
        depth = min(super()._depth(ask), self._heads.count)
        return depth if self._heads.ready(ask.seq, ask.position, depth) else 0

    def _probe(self, ask: Ask) -> None:
        # Of what was read before there were states nothing can be guessed any more.
        gone = min(self._heads.begins(ask.seq) - 1, len(ask.tokens) - 1)
        self._read_prompt(ask.seq, ask.tokens, gone)
        super()._probe(ask)


class MedusaDrafter(Trees):
    """Trees of the heads' guesses, the most probable paths first (Cai et al. 2024, 2.1.2, 2.3.3).

    All heads have spoken before the first token is chosen, so the nodes go where they are worth
    most, whatever the depth. Where the budget is for a single leaf it drafts chains.
    """

    def __init__(self, model: MedusaModel, favoured: Proposal) -> None:
        """``favoured`` is the verifier's kind of proposal: COUPLED or SAMPLED."""
        super().__init__(MedusaChains(model, favoured), model.vocabulary, favoured, NAME)
        self._heads = model
        self._by_head: list[Distribution] = []
        """The q of each head for the tree being built, before anything is drafted."""

    def _depth(self, ask: Ask) -> int:
        return min(super()._depth(ask), self._heads.count)

    def _widths(self, ask: Ask, depth: int) -> Sequence[int]:
        processor = self._ranking(ask.processor)
        self._by_head = []
        for i in range(depth):
            q = self._q(processor, self._heads.row(ask.seq, ask.position + i), ask.before())
            if q is None:
                break
            self._by_head.append(q)
        shares = [np.sort(q.probs)[::-1][:RANKS].tolist() for q in self._by_head]
        return best_first(shares, ask.budget.nodes, self._leaves(ask.budget)) if shares else []

    def _distributions(self, tree: TreeBuilder, frontier: Sequence[int]) -> dict[int, Distribution]:
        ask, depth = tree.ask, len(tree.confidences)
        if not ask.processor.reads_text:
            return dict.fromkeys(frontier, self._by_head[depth])
        logits = self._heads.row(ask.seq, ask.position + depth)
        return self._following(tree, ((node, logits) for node in frontier))


def best_first(shares: Sequence[Sequence[float]], nodes: int, leaves: int) -> list[int]:
    """Nodes of each level of the tree whose paths are most probable; levels without any left out.

    ``shares`` are the largest probabilities at each level, in order, the same for all parents. What
    is taken depends on them alone, never on a token, so that rejection sampling stays exact.
    """
    widths, ends = [0] * len(shares), 1
    waiting = [(-shares[0][0], 0, 0, 1.0)]  # probability of the path, level, rank, the same above
    while waiting and sum(widths) < nodes:
        negative, level, rank, above = heapq.heappop(waiting)
        if rank and ends == leaves:
            continue
        ends += rank > 0
        widths[level] += 1
        if rank + 1 < len(shares[level]):
            beside = -above * shares[level][rank + 1]
            heapq.heappush(waiting, (beside, level, rank + 1, above))
        if level + 1 < len(shares):
            below = negative * shares[level + 1][0]
            heapq.heappush(waiting, (below, level + 1, 0, -negative))
    return [width for width in widths if width]
