"""Tiny target and draft distributions, and drafters of every shape on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from ruled import Rule, Ruled

from localspec.core.errors import NothingAllowedError
from localspec.core.events import Speculation
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, RequestState
from localspec.core.repetition import NO_BREAKERS, Breakers
from localspec.core.values import Distribution, Draft, Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Verifier
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree import TreeDrafter as Branching
from localspec.testing import Fixed, Table, TableModel, TableTarget

WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = [0, 1]


def random_table(seed: int, v: int, sharpness: float = 1.5) -> Table:
    """Logits that depend on the last two tokens, normal with the given deviation."""
    rows = np.random.default_rng(seed).normal(0, sharpness, (v + 1, v + 1, v)).astype(np.float32)

    def table(tokens: Sequence[int]) -> np.ndarray:
        a, b = ([v, v, *tokens])[-2:]
        return rows[a, b]

    return table


def without(table: Table, token: int) -> Table:
    """A draft that cannot propose a token, as one of another vocabulary cannot."""

    def found(tokens: Sequence[int]) -> np.ndarray:
        row = table(tokens).copy()
        row[token] = -np.inf
        return row

    return found


def blend(a: Table, b: Table, weight: float) -> Table:
    """A draft that resembles ``a``."""
    return lambda tokens: ((1 - weight) * a(tokens) + weight * b(tokens)).astype(np.float32)


Pick = Callable[[Distribution, Ask, int, int], list[int]]


def pick_argmax(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    return [int(q.ids[np.argmax(q.probs)])]


def pick_top2(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    return [int(i) for i in q.ids[np.argsort(-q.probs, kind="stable")[:2]]]


def pick_coupled(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    return [ask.noise.draw(q, position, Stream.SAMPLE)]


def pick_sampled(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    return [_draw(q, ask, position, node, 0)]


def pick_two_independent(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    return [_draw(q, ask, position, node, i) for i in range(2)]


def pick_two_distinct(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
    """Gumbel top-k: the order of log q + noise is a draw without replacement."""
    keys = np.log(q.probs) + ask.noise.gumbel(position, q.ids, Stream.DRAFT, _index(ask, node, 0))
    return [int(i) for i in q.ids[np.argsort(-keys)[:2]]]


def _draw(q: Distribution, ask: Ask, position: int, node: int, sibling: int) -> int:
    return ask.noise.draw(q, position, Stream.DRAFT, _index(ask, node, sibling))


def _index(ask: Ask, node: int, sibling: int) -> int:
    return (ask.position << 16) + ((node + 2) << 4) + sibling


class TreeDrafter(Drafter):
    """Grows a tree level by level: each node's children are what ``pick`` chooses from q. A node
    after which nothing that it could propose is allowed has none.
    """

    def __init__(self, name: str, table: Table, pick: Pick, proposal: Proposal, depth: int) -> None:
        self.name, self._table, self._pick = name, table, pick
        self.proposal, self._depth = proposal, depth

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        probs: list[Distribution] = []
        level: list[tuple[int, list[int]]] = [(-1, [])]
        for d in range(min(self._depth, ask.budget.depth)):
            following = []
            for node, path in level:
                q = self._q(ask, [*ask.tokens, *path])
                if q is None:
                    continue
                for x in self._pick(q, ask, ask.position + d, node):
                    tokens.append(x)
                    parents.append(node)
                    probs.append(q)
                    following.append((len(tokens) - 1, [*path, x]))
            level = following
        known = self.proposal in {Proposal.SAMPLED, Proposal.WITHOUT_REPLACEMENT}
        return Draft(
            np.array(tokens, np.int32),
            np.array(parents, np.int32),
            self.proposal,
            tuple(probs) if known else None,
            self.name,
        )

    def _q(self, ask: Ask, past: Sequence[int]) -> Distribution | None:
        try:
            return ask.processor(self._table(past), past)
        except NothingAllowedError:
            return None


SHAPES: dict[str, tuple[Pick, Proposal]] = {
    "argmax chain": (pick_argmax, Proposal.DETERMINISTIC),
    "coupled chain": (pick_coupled, Proposal.COUPLED),
    "sampled chain": (pick_sampled, Proposal.SAMPLED),
    "top-2 tree": (pick_top2, Proposal.DETERMINISTIC),
    "independent tree": (pick_two_independent, Proposal.SAMPLED),
    "distinct tree": (pick_two_distinct, Proposal.WITHOUT_REPLACEMENT),
}


def shaped_drafter(shape: str, table: Table, depth: int = 3) -> TreeDrafter:
    pick, proposal = SHAPES[shape]
    return TreeDrafter(shape, table, pick, proposal, depth)


def decode(
    table: Table,
    drafter: object,
    verifier: Verifier,
    seed: int,
    n: int,
    *,
    sampling: Sampling = WARM,
    policy: object = None,
    rule: Rule | None = None,
    guided: bool = True,
    breakers: Breakers = NO_BREAKERS,
) -> list[int]:
    """n tokens by the real loop on a table target; every round audited by the loop itself."""
    target = TableTarget(table)
    target.read(0, PROMPT[:-1])
    constraint = None if rule is None else Ruled(rule, len(PROMPT))
    noise = Noise(seed)
    processor = LogitsProcessor(
        sampling, len(table([])), constraint, noise=noise, breakers=breakers
    )
    request = Request(0, list(PROMPT), processor, noise, n, verifier=verifier, guided=guided)
    while request.running:
        decode_round([request], target, drafter, policy or Fixed(3))
    if request.error is not None:
        raise request.error
    assert len(request.emitted) == n
    assert request.tally.accepted <= request.tally.verified <= request.tally.drafted
    return [e.token for e in request.emitted]


def exact_joint(
    table: Table, n: int, sampling: Sampling = WARM, rule: Rule | None = None
) -> dict[tuple[int, ...], float]:
    """The target's own probability of every first n tokens, of those that are possible."""
    v = len(table([]))
    constraint = None if rule is None else Ruled(rule, len(PROMPT))
    processor = LogitsProcessor(sampling, v, constraint)
    joint = {}
    for outcome in itertools.product(range(v), repeat=n):
        mass = 1.0
        for i, x in enumerate(outcome):
            past = [*PROMPT, *outcome[:i]]
            mass *= processor(table(past), past).probability(x) if mass else 0.0
        if mass:
            joint[outcome] = mass
    return joint


def branching(table: Table, favoured: Proposal) -> Branching:
    """The drafter of trees, with a table for its draft model."""
    chains, trees = TableModel(table), TableTarget(table)
    trees.cache = chains.cache
    return Branching(ChainDrafter(chains, favoured, "tree"), trees, chains.vocabulary, favoured)


class GrowingTable(TableModel):
    """A `GrowingModel` that looks its logits up; it reads levels of up to nine nodes."""

    breadth = 9

    def __init__(self, table: Table, capacity: int = 1 << 20) -> None:
        super().__init__(table, capacity)
        self.level: list[list[int]] | None = None
        """The paths to the nodes of the last level."""

    def grow(self, tokens: Sequence[int], above: Sequence[int]) -> np.ndarray:
        assert len(tokens) <= self.breadth
        paths = [[]] * len(tokens) if self.level is None else [self.level[i] for i in above]
        self.level = [[*path, token] for path, token in zip(paths, tokens, strict=True)]
        return np.array([self.table([*self.cache[0], *path]) for path in self.level])

    def prune(self) -> None:
        self.level = None

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[np.ndarray]:
        assert self.level is None, "a tree is still there"
        return super().extend(work)


def growing(table: Table, favoured: Proposal) -> HeadTreeDrafter:
    """The drafter of a head's trees, with a table for the head."""
    return HeadTreeDrafter(GrowingTable(table), favoured, "head")


class Broad:
    """Trees of seven nodes, three deep and up to three broad."""

    speculation = Speculation("on")
    costs = None

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((DraftStep(ANY, Budget(nodes=7, depth=3, leaves=3)),))] * len(states)

    def learn(self, outcomes: object, evidence: object) -> None:
        pass


def everything(depth: int) -> Budget:
    return Budget(nodes=1 << 10, depth=depth, leaves=1 << 10)
