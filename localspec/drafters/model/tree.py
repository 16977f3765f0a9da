"""Drafting a tree with a draft model: several tokens at each place, verified in one pass."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from localspec.core.errors import NothingAllowedError, NotNumbersError
from localspec.core.logits import LogitsProcessor
from localspec.core.plan import Budget, Evidence
from localspec.core.target import Work
from localspec.core.values import ROOT, Distribution, Draft, Logits, Proposal, Scores, no_draft
from localspec.drafters.base import Ask, Committed, Drafter
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.interface import CANNOT
from localspec.drafters.model.tree_builder import RANKS, Slot, TreeBuilder, ranked

_HEAD = 32
"""Support of the distribution that ranks candidates at temperature 0."""


class TreeModel(Protocol):
    """A language model that scores trees after its KV cache, as a target does."""

    @property
    def capacity(self) -> int:
        """Tokens that fit for one sequence."""
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


class Trees(Drafter):
    """Trees grown level by level, the most probable places first (Li et al. 2024, "EAGLE-2").

    The token of a place depends on the verifier: at temperature 0 the best of q; for match at other
    temperatures the best of log q + the target's own noise, so that the target's choice is likely
    among them; for rejection a draw without replacement, by the same method with separate noise
    (Chen et al. 2024, "Sequoia", section 3.2).

    The shape of a level is decided before any of its tokens is drawn, from the sorted values of q
    alone. So a place never depends on the token in it, and rejection sampling stays exact. For the
    same reason nothing that was drawn is ever taken back: where nothing more can be proposed after
    a token, or its logits cannot be had, it has no children, and the levels above stay.

    With a budget for a single leaf it drafts chains through its `ChainDrafter`, which also keeps
    the cache and runs the probes.
    """

    def __init__(
        self, chains: ChainDrafter, vocabulary: int, favoured: Proposal, name: str
    ) -> None:
        """``vocabulary`` is the number of ids that draft and target share; ``favoured`` is the
        proposal that the verifier favours: COUPLED or SAMPLED.
        """
        self.name = name
        self._chains = chains
        self._vocabulary = vocabulary
        self._favoured = favoured
        self._trees: dict[int, TreeBuilder] = {}
        """Trees to be compared with the tokens that the round emits."""

    def _leaves(self, budget: Budget) -> int:
        """Most leaves of a tree."""
        return budget.leaves

    def _depth(self, ask: Ask) -> int:
        """Most levels of a tree."""
        return min(ask.budget.depth, ask.budget.nodes)

    def _widths(self, ask: Ask, depth: int) -> Sequence[int]:
        """Nodes of each level, at least 1 each."""
        return [max(1, ask.budget.nodes // depth)] * depth

    @abc.abstractmethod
    def _distributions(self, tree: TreeBuilder, frontier: Sequence[int]) -> dict[int, Distribution]:
        """q after each node of the last level; none of those that can have no children."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A tree for a single ask with the budget for one; else chains."""
        if len(asks) > 1 or asks[0].probe or self._leaves(asks[0].budget) < 2:
            return self._chains.propose(asks)
        return [self._one(asks[0])]

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Evidence on the levels of the last tree, or on the last chains."""
        evidence = self._chains.commit(committed)
        for item in committed:
            tree = self._trees.pop(item.seq, None)
            if tree is not None and tree.ask.tokens is item.all_tokens:
                evidence += self._compared(tree, item)
        return evidence

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """See `Drafter.prompt_read`."""
        self._chains.prompt_read(seq, tokens, upto)

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """See `Drafter.read_missed`."""
        self._chains.read_missed(seq, tokens, upto)

    @property
    def problem(self) -> str | None:
        """Why it has stopped drafting for good; None if it has not."""
        return self._chains.problem

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) the draft's logits after ``tokens``; None if it cannot read them."""
        return self._chains.logits(seq, tokens)

    def unread(self, seq: int, tokens: Sequence[int]) -> int:
        """See `Drafter.unread`."""
        return self._chains.unread(seq, tokens)

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
        tree = TreeBuilder(ask, self._proposal(ask))
        self._grow(tree, depth)
        tree.best_path_first()
        self._trees[ask.seq] = tree
        seconds = time.perf_counter() - start
        if not tree.tokens:
            return no_draft(self.name, seconds, len(tree.confidences))
        return tree.draft(self.name, seconds)

    def _ready(self, ask: Ask) -> bool:
        """Cache the tokens that a tree needs; False if that is impossible."""
        return self._chains.prepare(ask)

    def _grow(self, tree: TreeBuilder, depth: int) -> None:
        """Add levels, as far as the pace allows."""
        frontier, pace = [ROOT], tree.ask.pace
        for width in self._widths(tree.ask, depth):
            level = self._distributions(tree, frontier)
            if not level:
                break
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

    def _following(
        self, tree: TreeBuilder, rows: Iterable[tuple[int, Logits]]
    ) -> dict[int, Distribution]:
        """q after each of the nodes, by its logits (V,)."""
        processor, so_far = self._ranking(tree.ask.processor), tree.draft(self.name)
        found = {}
        for node, row in rows:
            q = self._q(processor, row, tree.ask.before(so_far.prefix(node)))
            if q is not None:
                found[node] = q
        return found

    def _q(
        self, processor: LogitsProcessor, row: Logits, before: Sequence[int]
    ) -> Distribution | None:
        """q of a place; None where there is none."""
        try:
            return processor(row, before)
        except NotNumbersError:
            self._chains.give_up()
        except NothingAllowedError:  # the target may have allowed tokens that the draft lacks
            pass
        return None

    def _proposal(self, ask: Ask) -> Proposal:
        if ask.processor.sampling.kind == "greedy":
            return Proposal.DETERMINISTIC
        favoured = ask.proposal(self._favoured)
        return Proposal.WITHOUT_REPLACEMENT if favoured is Proposal.SAMPLED else favoured

    def _ranking(self, processor: LogitsProcessor) -> LogitsProcessor:
        """The processor that ranks candidates: at temperature 0, where q is a single token, that of
        temperature 1.
        """
        sampling = processor.sampling
        if sampling.kind != "greedy":
            return processor
        warm = replace(sampling, temperature=1.0, top_k=_HEAD, top_p=1.0, min_p=0.0)
        return processor.warmed(warm)

    def _slots(self, tree: TreeBuilder, level: dict[int, Distribution], width: int) -> list[Slot]:
        """The most probable places for children, as many as the budget allows."""
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
        tree: TreeBuilder,
        level: dict[int, Distribution],
        slots: Sequence[Slot],
        *,
        drawn: bool = True,
    ) -> list[tuple[Slot, int, Distribution]]:
        """Tokens for the places, and the q of each. Without ``drawn``, rejection proposals are
        replaced by coupled ones, see `TokenChooser.likely`.
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

    def _compared(self, tree: TreeBuilder, committed: Committed) -> list[Evidence]:
        """Evidence on each level: whether it contains the emitted token."""
        found: list[Evidence] = []
        node = ROOT
        for level, confidence in enumerate(tree.confidences[: len(committed.new_tokens)]):
            children, token = tree.children(node, level), committed.new_tokens[level]
            if level and level == tree.levels and not children:
                break  # nothing would have been drafted there
            if level not in committed.forced:
                found.append(Evidence(committed.seq, self.name, confidence, token in children))
            if token not in children:
                break
            node = children[token]
        return found


class TreeDrafter(Trees):
    """Trees from a draft model. Every level reads the whole tree again: one pass for each level,
    and a pass over several tokens is nearly free wherever trees pay.
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

    def _distributions(self, tree: TreeBuilder, frontier: Sequence[int]) -> dict[int, Distribution]:
        ask, so_far = tree.ask, tree.draft(self.name)
        try:
            (scores,) = self._model.score([Work(ask.seq, ask.tokens[-1], so_far)])
        except CANNOT:
            return {}
        logits = scores.logits[:, : self._vocabulary]
        self._model.truncate(ask.seq, len(ask.tokens) - 1)
        return self._following(tree, ((node, logits[1 + node]) for node in frontier))
