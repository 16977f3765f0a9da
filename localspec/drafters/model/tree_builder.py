"""A draft tree being built: its nodes, their probabilities and the tokens of their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.core.noise import Stream
from localspec.core.values import ROOT, Distribution, Draft, Proposal
from localspec.drafters.base import Ask

RANKS = 4
"""Default limit of children of one node."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a child: the ``rank``-th of its parent."""

    parent: int
    rank: int
    score: float


@dataclass(slots=True)
class TreeBuilder:
    """A tree being built."""

    ask: Ask
    proposal: Proposal
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    """The draft's estimate that the path to the node is accepted."""
    confidences: list[float] = field(default_factory=list)
    """Per level: P(some node accepted, given one of the level above was)."""
    refused: list[tuple[int, int]] | None = None
    """(parent, token) of the last level, where the pace refused it."""
    leaves: int = 1

    @property
    def levels(self) -> int:
        """Levels that were drafted."""
        return len(self.confidences) - (self.refused is not None)

    def children(self, node: int, level: int) -> dict[int, int]:
        """Children of ``node`` by token, in ``level``; ROOT for each token of a refused level."""
        if level < self.levels:
            return {self.tokens[i]: i for i, above in enumerate(self.parents) if above == node}
        return {token: ROOT for above, token in self.refused or () if above == node}

    def best_path_first(self) -> None:
        """Renumber the nodes depth first: then the path that is kept most often is contiguous in
        the KV cache.
        """
        below: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            below.setdefault(parent, []).append(node)
        order: list[int] = []
        waiting = below.get(ROOT, [])[::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += below.get(order[-1], [])[::-1]
        self.keep(order)

    def keep(self, nodes: Sequence[int]) -> None:
        """Keep only ``nodes``, in this order. Parents come before children, and none is missing."""
        place = {node: i for i, node in enumerate(nodes)} | {ROOT: ROOT}
        self.parents = [place[self.parents[node]] for node in nodes]
        self.tokens = [self.tokens[node] for node in nodes]
        self.q = [self.q[node] for node in nodes]
        self.scores = [self.scores[node] for node in nodes]
        if self.refused is not None:
            self.refused = [(place[node], x) for node, x in self.refused if node in place]

    def score(self, node: int) -> float:
        """Path probability of a node, or of the root."""
        return 1.0 if node == ROOT else self.scores[node]

    def add(self, level: Iterable[tuple[Slot, int, Distribution]]) -> list[int]:
        """Add nodes with their tokens and q; returns the indices of the new nodes."""
        first = len(self.tokens)
        for slot, token, q in level:
            self.tokens.append(token)
            self.parents.append(slot.parent)
            self.q.append(q)
            self.scores.append(slot.score)
        return [*range(first, len(self.tokens))]

    def draft(self, source: str, seconds: float = 0.0) -> Draft:
        drawn = self.proposal is Proposal.WITHOUT_REPLACEMENT
        return Draft(
            np.array(self.tokens, np.int32),
            np.array(self.parents, np.int32),
            self.proposal,
            tuple(self.q) if drawn else None,
            source,
            seconds,
            len(self.confidences),
        )


def ranked(
    q: Distribution, ask: Ask, position: int, node: int, proposal: Proposal, most: int = RANKS
) -> Sequence[int]:
    """Tokens for the children of a node, in the order of their ranks."""
    if proposal is Proposal.DETERMINISTIC:
        keys = np.array(q.probs)
    elif proposal is Proposal.COUPLED:
        keys = np.log(q.probs) + ask.noise.gumbel(position, q.ids, Stream.SAMPLE)
    else:
        index = (ask.position << 16) + node + 2
        keys = np.log(q.probs) + ask.noise.gumbel(position, q.ids, Stream.DRAFT, index)
    best: Sequence[int] = q.ids[np.argsort(-keys, kind="stable")[:most]].tolist()
    return best
