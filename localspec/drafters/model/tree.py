"""Drafting a tree with a draft model: several guesses at each place, verified in one pass."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.plan import Budget, Evidence
from localspec.core.target import Work
from localspec.core.values import ROOT, Distribution, Draft, Logits, Proposal, Scores, no_draft
from localspec.drafters.base import Ask, Committed
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree_builder import RANKS, Growing, Slot, ranked
from localspec.errors import NothingAllowedError, NotNumbersError

_HEAD = 32
"""Tokens among which probability is shared out where q is only ranked by it."""


class TreeModel(Protocol):
    """A language model that scores trees after its KV cache, as a target does."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        ...

    @property
    def leaves(self) -> int:
        """Leaves of a tree that it can score."""
        ...

    def score(self, work: Sequence[Work]) -> list[Scores]:
        """Logits after the pending token and every node."""
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens."""
        ...


class Trees(abc.ABC):
    """Trees grown level by level, the most probable places first (Li et al. 2024, "EAGLE-2").

    What goes into a place follows the verifier: the best of q at temperature 0; for match at other
    temperatures the best of log q + the target's own noise, so that the target's choice is likely
    among them; for rejection draws without replacement, by the same trick with noise of their own
    (Chen et al. 2024, "Sequoia", section 3.2).

    Which places there are is decided before anything is drawn for them, from the sorted values of q
    alone. So a place never depends on the token in it, and rejection sampling stays exact.

    Where the budget is for a single leaf it drafts chains, as `ChainDrafter` does, which also keeps
    the cache and looks.
    """

    def __init__(
        self, chains: ChainDrafter, vocabulary: int, favoured: Proposal, name: str
    ) -> None:
        """``vocabulary`` are the ids that draft and target share; ``favoured`` is the verifier's
        kind of proposal: COUPLED or SAMPLED.
        """
        self.name = name
        self._chains = chains
        self._vocabulary = vocabulary
        self._favoured = favoured
        self._rankings: dict[Sampling, LogitsProcessor] = {}
        self._trees: dict[int, Growing] = {}
        """Trees that wait for their verdict."""

    def _leaves(self, budget: Budget) -> int:
        """That a tree may have."""
        return budget.leaves

    def _depth(self, ask: Ask) -> int:
        """Levels that a tree may have."""
        return min(ask.budget.depth, ask.budget.nodes)

    def _widths(self, ask: Ask, depth: int) -> Sequence[int]:
        """Nodes of each level, none of them without any."""
        return [max(1, ask.budget.nodes // depth)] * depth

    @abc.abstractmethod
    def _distributions(self, tree: Growing, frontier: Sequence[int]) -> dict[int, Distribution]:
        """q after each node of the last level."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A tree for a single ask that has the budget for one; else chains."""
        if len(asks) > 1 or asks[0].look or self._leaves(asks[0].budget) < 2:
            return self._chains.propose(asks)
        return [self._one(asks[0])]

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """How the levels of the last tree did, or the last chains."""
        evidence = self._chains.commit(news)
        for item in news:
            tree = self._trees.pop(item.seq, None)
            if tree is not None and tree.ask.tokens is item.known:
                evidence += self._judged(tree, item)
        return evidence

    @property
    def trouble(self) -> str | None:
        """Why it drafts no more; see `Fallible`."""
        return self._chains.trouble

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) what follows ``tokens`` by the draft; see `Guesses`."""
        return self._chains.logits(seq, tokens)

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the draft model's KV cache."""
        return self._chains.length(seq)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._trees.pop(seq, None)
        self._chains.close(seq)

    # -- growing -------------------------------------------------------------------------------

    def _one(self, ask: Ask) -> Draft:
        start = time.perf_counter()
        depth = self._depth(ask)
        if depth <= 0 or not self._ready(ask):
            return no_draft(self.name)
        tree = Growing(ask, self._proposal(ask))
        try:
            self._grow(tree, depth)
        except NotNumbersError:
            self._chains.give_up()
            return no_draft(self.name)
        except NothingAllowedError:  # of what the draft knows; the target may know other tokens
            return no_draft(self.name)
        tree.best_path_first()
        self._trees[ask.seq] = tree
        seconds = time.perf_counter() - start
        if not tree.tokens:
            return no_draft(self.name, seconds, len(tree.confidences))
        return tree.draft(self.name, seconds)

    def _ready(self, ask: Ask) -> bool:
        """Have read what a tree needs; False if that cannot be."""
        return self._chains.read(ask)

    def _grow(self, tree: Growing, depth: int) -> None:
        """Level by level, as far as the pace goes along.

        Raises:
            NotNumbersError: the draft computes none.
            NothingAllowedError: the request forbids all that the draft could propose.
        """
        frontier, pace = [ROOT], tree.ask.pace
        for width in self._widths(tree.ask, depth):
            level = self._distributions(tree, frontier)
            slots = self._slots(tree, level, width)
            above = sum(tree.score(node) for node in frontier)
            tree.confidences.append(min(1.0, sum(s.score for s in slots) / above))
            if not slots or not pace.more(tree.confidences):
                likely = self._chosen(tree, level, slots, drawn=False)
                tree.refused = [(slot.parent, token) for slot, token, _ in likely]
                break
            frontier = tree.add(self._chosen(tree, level, slots))
            if not frontier or not pace.further(tree.confidences):
                break

    def _proposal(self, ask: Ask) -> Proposal:
        if ask.processor.sampling.kind == "greedy":
            return Proposal.DETERMINISTIC
        if self._favoured is Proposal.SAMPLED:
            return Proposal.WITHOUT_REPLACEMENT
        return self._favoured

    def _ranking(self, processor: LogitsProcessor) -> LogitsProcessor:
        """At temperature 0 q is a single token; which ones come next is told at temperature 1."""
        sampling = processor.sampling
        if sampling.kind != "greedy":
            return processor
        if sampling not in self._rankings:
            warm = replace(sampling, temperature=1.0, top_k=_HEAD, top_p=1.0, min_p=0.0)
            # Its bias was checked against the target's vocabulary, which may be larger.
            known = max((token for token, _ in sampling.logit_bias), default=0) + 1
            self._rankings[sampling] = LogitsProcessor(warm, known)
        return self._rankings[sampling]

    def _slots(self, tree: Growing, level: dict[int, Distribution], width: int) -> list[Slot]:
        """The most probable places for children, as many as the budget has."""
        budget = tree.ask.budget
        most = min(width, budget.nodes - len(tree.tokens))
        offered = [
            Slot(node, rank, tree.score(node) * float(share))
            for node, q in level.items()
            for rank, share in enumerate(np.sort(q.probs)[::-1][:RANKS])
        ]
        offered.sort(key=lambda slot: (-slot.score, slot.parent, slot.rank))
        leaves = self._leaves(budget)
        taken: list[Slot] = []
        for slot in offered:
            if len(taken) == most:
                break
            if slot.rank and tree.leaves == leaves:
                continue
            tree.leaves += slot.rank > 0
            taken.append(slot)
        taken.sort(key=lambda slot: (slot.parent, slot.rank))
        return taken

    def _chosen(
        self,
        tree: Growing,
        level: dict[int, Distribution],
        slots: Sequence[Slot],
        *,
        drawn: bool = True,
    ) -> list[tuple[Slot, int, Distribution]]:
        """Tokens for the places, and the q of each. Where none are to be ``drawn`` for rejection,
        coupled ones stand for them, see `TokenChooser.likely`.
        """
        ask, depth, proposal = tree.ask, len(tree.confidences) - 1, tree.proposal
        if not drawn and proposal is Proposal.WITHOUT_REPLACEMENT:
            proposal = Proposal.COUPLED
        chosen: list[tuple[Slot, int, Distribution]] = []
        for node, q in level.items():
            here = [slot for slot in slots if slot.parent == node]
            if here:
                order = ranked(q, ask, ask.position + depth, node, proposal)
                chosen += [(slot, x, q) for slot, x in zip(here, order, strict=False)]
        return chosen

    def _judged(self, tree: Growing, news: Committed) -> list[Evidence]:
        """Whether each level held the token that was emitted there."""
        found: list[Evidence] = []
        node = ROOT
        for level, confidence in enumerate(tree.confidences[: len(news.tokens)]):
            children, token = tree.children(node, level), news.tokens[level]
            if level and level == tree.levels and not children:
                break  # nothing was going to be drafted there
            found.append(Evidence(news.seq, self.name, level, confidence, token in children))
            if token not in children:
                break
            node = children[token]
        return found


class TreeDrafter(Trees):
    """Trees from a draft model. Every level reads the tree anew: that is one pass a level, and a
    pass over several tokens is nearly free wherever trees pay.
    """

    def __init__(
        self, chains: ChainDrafter, model: TreeModel, vocabulary: int, favoured: Proposal
    ) -> None:
        """``chains`` and ``model`` use the same KV cache; see `Trees`."""
        super().__init__(chains, vocabulary, favoured, "tree")
        self._model = model

    def _leaves(self, budget: Budget) -> int:
        return min(budget.leaves, self._model.leaves)

    def _depth(self, ask: Ask) -> int:
        return min(super()._depth(ask), self._model.capacity - len(ask.tokens))

    def _distributions(self, tree: Growing, frontier: Sequence[int]) -> dict[int, Distribution]:
        ask, so_far = tree.ask, tree.draft(self.name)
        processor = self._ranking(ask.processor)
        (scores,) = self._model.score([Work(ask.seq, ask.tokens[-1], so_far)])
        logits = scores.logits[:, : self._vocabulary]
        self._model.truncate(ask.seq, len(ask.tokens) - 1)
        lookback = processor.lookback
        before = ask.tokens[-lookback:] if lookback else []

        def q(node: int) -> Distribution:
            past = [*before, *so_far.prefix(node)] if lookback else before
            return processor(logits[1 + node], past)

        return {node: q(node) for node in frontier}
