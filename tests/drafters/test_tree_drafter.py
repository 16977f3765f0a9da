"""Trees from a draft model: their shape, their order, their books."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tables
from policy_world import CPU, GPU, Timeless
from ruled import Ruled

from localspec.core.drafter_registry import Branching
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.plan import Budget, RequestState
from localspec.core.values import Draft, Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Ask, Committed
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree import TreeDrafter, Trees
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import TableModel

TABLE = tables.random_table(5, v=6)
WARM = tables.WARM


def drafter(favoured: Proposal = Proposal.COUPLED) -> TreeDrafter:
    return tables.branching(TABLE, favoured)


def ask(tokens: list[int], budget: Budget, sampling: Sampling = GREEDY) -> Ask:
    return Ask(0, tokens, budget, Noise(0), LogitsProcessor(sampling, 6))


def leaves(draft: Draft) -> int:
    return len(set(range(len(draft))) - {int(p) for p in draft.parents})


@pytest.mark.parametrize(
    "budget", [Budget(12, 4, 3), Budget(3, 3, 1), Budget(8, 2, 4), Budget(1, 1, 1)]
)
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_tree_keeps_its_budget(budget: Budget, sampling: Sampling) -> None:
    (draft,) = drafter().propose([ask([0, 1], budget, sampling)])
    assert 0 < len(draft) <= budget.nodes
    assert leaves(draft) <= budget.leaves
    assert max(len(draft.prefix(i)) for i in range(len(draft))) <= budget.depth
    assert all(parent < i for i, parent in enumerate(draft.parents))


def test_children_are_the_most_probable_tokens_best_first() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget(12, 4, 3))])
    assert draft.proposal is Proposal.DETERMINISTIC
    row = TABLE([0, 1])
    children = draft.tokens[draft.children(-1)].tolist()
    assert children[0] == int(np.argmax(row))
    assert len(set(children)) == len(children)


def test_greedy_trees_branch_too() -> None:
    """q is a single token then; its rivals come from the same logits."""
    penalised = Sampling(temperature=0, presence_penalty=9.0)
    for sampling in (GREEDY, penalised, Sampling(temperature=1, top_k=1)):
        (draft,) = drafter().propose([ask([0, 1], Budget(6, 2, 3), sampling)])
        row = TABLE([0, 1]).copy()
        if sampling is penalised:
            row[[0, 1]] -= 9.0
        assert draft.tokens[draft.children(-1)].tolist() == np.argsort(-row)[:3].tolist()


def test_the_first_path_lies_in_one_piece() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget(12, 4, 3))])
    node, path = -1, []
    while draft.children(node):
        node = draft.children(node)[0]
        path.append(node)
    assert path == [*range(len(path))]
    assert len(path) > 1


def test_greedy_chains_are_those_of_the_table() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget.chain(3))])
    known = [0, 1]
    for token in draft.tokens.tolist():
        assert token == int(np.argmax(TABLE(known)))
        known.append(token)


def test_coupled_children_begin_with_what_the_target_would_draw_from_q() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget(8, 2, 4), WARM)])
    assert draft.proposal is Proposal.COUPLED
    q = LogitsProcessor(WARM, 6)(TABLE([0, 1]), [])
    assert draft.tokens[0] == Noise(0).draw(q, 2, Stream.SAMPLE)


def test_siblings_for_rejection_are_drawn_without_replacement() -> None:
    (draft,) = drafter(Proposal.SAMPLED).propose([ask([0, 1], Budget(8, 2, 4), WARM)])
    assert draft.proposal is Proposal.WITHOUT_REPLACEMENT
    assert draft.probs is not None
    for node in range(-1, len(draft)):
        children = draft.tokens[draft.children(node)].tolist()
        assert len(children) == len(set(children))


def test_a_look_is_answered_and_several_requests_get_chains() -> None:
    trees = drafter()
    known = [0, 1, 2, 3]
    look = dataclasses.replace(ask(known, Budget(0, 0, 0)), probe=True)
    (draft,) = trees.propose([look])
    assert len(draft) == 0
    known.append(4)
    evidence = trees.commit([Committed(0, known, [4])])
    assert len(evidence) == 3
    assert {e.source for e in evidence} == {"tree"}
    both = [ask(known, Budget(12, 4, 3)), dataclasses.replace(ask([2], Budget(6, 2, 3)), seq=1)]
    assert all(d.is_chain and d.source == "tree" for d in trees.propose(both))


def test_a_look_compares_with_what_the_target_chose_and_not_with_the_prompt() -> None:
    trees = drafter()
    known = [0, 1, 2, 3, 4]
    look = dataclasses.replace(ask(known, Budget(0, 0, 0)), probe=True, prompt=3)
    trees.propose([look])
    assert len(trees.commit([Committed(0, known, [4])])) == 2
    trees = drafter()
    trees.propose([dataclasses.replace(look, prompt=5)])
    assert trees.commit([Committed(0, known, [4])]) == []


def test_a_look_that_reads_one_token_leaves_the_rest_and_takes_no_evidence_of_the_prompt() -> None:
    trees = drafter()
    known = [0, 1, 2, 3, 4]
    look = dataclasses.replace(ask(known, Budget(0, 0, 0)), probe=True, prompt=2, reads=1)
    found = []
    for unread in (3, 2, 1, 0, 0):
        (draft,) = trees.propose([look])
        assert trees.unread(0, known) == unread
        found.append((len(trees.commit([Committed(0, known, [])])), draft.seconds > 0))
    # The first token is followed by one of the prompt; at last there is nothing left to read.
    assert found == [(0, True), (1, True), (1, True), (1, True), (0, False)]


def test_ids_and_lengths_beyond_the_draft_model_end_drafting_and_nothing_else() -> None:
    trees = drafter()
    assert len(trees.propose([ask([0, 77, 1], Budget(6, 2, 3))])[0]) == 0
    chains, model = TableModel(TABLE, capacity=4), tables.TableTarget(TABLE, capacity=4)
    model.cache = chains.cache
    trees = TreeDrafter(ChainDrafter(chains, Proposal.COUPLED, "tree"), model, 6, Proposal.COUPLED)
    lengths = [len(trees.propose([ask([0] * n, Budget(6, 2, 3))])[0]) for n in range(1, 7)]
    assert lengths == [6, 6, 3, 0, 0, 0]


@pytest.mark.parametrize("make", [tables.branching, tables.growing])
def test_the_controller_comes_to_draft_trees_from_nothing_known(
    make: Callable[[tables.Table, Proposal], Trees],
) -> None:
    """It looks first, as with any unknown draft, then drafts as broad as the machine allows."""
    for curve, broad in ((CPU, False), ({1: 1.0, 64: 1.0}, True)):
        trees, shapes = make(TABLE, Proposal.COUPLED), []
        knowledge = Knowledge({0: Costs(curve, {trees.name: 0.02 * curve[1]})})
        policy = Timeless(knowledge, [trees.name], branching={trees.name: Branching()})
        target = tables.TableTarget(TABLE)
        target.read(0, [0])
        request = Request(0, [0, 1], LogitsProcessor(GREEDY, 6), Noise(1), 150)
        while request.running:
            (turn,) = decode_round([request], target, trees, policy)
            shapes.append(leaves(turn.draft))
        assert (max(shapes) > 1) is broad
        assert request.tally.accepted > 50


def test_the_cache_is_a_prefix_of_what_was_committed() -> None:
    trees = drafter()
    tokens = [0, 1, 2]
    trees.commit([Committed(0, tokens, tokens)])
    assert trees.length(0) == 2
    trees.propose([ask(tokens, Budget(12, 4, 3))])
    assert trees.length(0) == 2
    tokens += [4, 5]
    trees.commit([Committed(0, tokens, [4, 5])])
    trees.propose([ask(tokens, Budget(12, 4, 3))])
    assert trees.length(0) == 4
    trees.commit([Committed(0, [0, 3], [3])])
    assert trees.length(0) == 1


def test_each_level_is_judged_by_what_was_emitted() -> None:
    trees = drafter()
    tokens = [0, 1]
    (draft,) = trees.propose([ask(tokens, Budget(12, 4, 3))])
    children = draft.children(-1)
    stood = int(draft.tokens[children[-1]])
    below = draft.tokens[draft.children(children[-1])].tolist()
    missing = next(x for x in range(6) if x not in below)
    tokens += [stood, missing]
    evidence = trees.commit([Committed(0, tokens, [stood, missing])])
    assert evidence[0].accepted
    assert not any(e.accepted for e in evidence[1:])
    assert len(evidence) == 2  # a path that ends before the tree does has missed too


def test_a_level_that_was_decided_against_is_judged_by_what_it_would_have_been() -> None:
    for sampling in (GREEDY, WARM):
        for favoured in (Proposal.COUPLED, Proposal.SAMPLED):
            (full,) = drafter().propose([ask([0, 1], Budget(12, 4, 3), sampling)])
            first, below = full.children(-1)[0], [int(x) for x in full.tokens[full.children(0)]]
            for levels in (0, 1):
                trees, tokens = drafter(favoured), [0, 1]
                asked = dataclasses.replace(
                    ask(tokens, Budget(12, 4, 3), sampling), pace=_Levels(levels)
                )
                (draft,) = trees.propose([asked])
                assert draft.considered == levels + 1
                assert bool(len(draft)) is bool(levels)
                said = [int(draft.tokens[0] if levels else full.tokens[first]), below[0]]
                tokens += said
                evidence = trees.commit([Committed(0, tokens, said)])
                if favoured is Proposal.COUPLED or not levels:
                    assert [e.accepted for e in evidence] == [True] * (levels + 1)


def lacking(last: int) -> tuple[tables.Table, Ruled | None]:
    """After that token the grammar allows token 5 alone, which the draft cannot propose."""
    rule = Ruled(lambda said: {5} if said and said[-1] == last else {0, 1, 2, 3, 4}, 2)
    return tables.without(TABLE, 5), rule


def damaged(last: int) -> tuple[tables.Table, Ruled | None]:
    """After that token the draft computes NaN."""

    def table(tokens: Sequence[int]) -> np.ndarray:
        row = TABLE(tokens)
        return np.full_like(row, np.nan) if len(tokens) > 2 and tokens[-1] == last else row

    return table, None


@pytest.mark.parametrize("make", [tables.branching, tables.growing])
@pytest.mark.parametrize("stuck", [lacking, damaged])
def test_what_was_drafted_stays_where_nothing_can_follow_a_token_of_it(
    stuck: Callable[[int], tuple[tables.Table, Ruled | None]],
    make: Callable[[tables.Table, Proposal], Trees],
) -> None:
    """Or which tokens are in a draft would depend on themselves, and rejection would be wrong."""
    table, rule = stuck(2)
    for seed in range(30):
        processor = LogitsProcessor(WARM, 6, rule)
        asked = Ask(0, [0, 1], Budget(8, 2, 4), Noise(seed), processor)
        trees = make(table, Proposal.SAMPLED)
        (draft,) = trees.propose([asked])
        (above,) = make(table, Proposal.SAMPLED).propose(
            [dataclasses.replace(asked, budget=Budget(4, 1, 4))]
        )
        first = draft.tokens[draft.children(-1)].tolist()
        assert first
        if isinstance(trees, TreeDrafter):
            assert first == above.tokens[: len(first)].tolist()
        for node in draft.children(-1):
            if draft.tokens[node] == 2:
                assert not draft.children(node)
        damage = rule is None and 2 in first
        assert (trees.problem is not None) is damage


class _Levels:
    """Allows for so many levels."""

    def __init__(self, n: int) -> None:
        self.n = n

    def more(self, confidences: Sequence[float]) -> bool:
        return len(confidences) <= self.n

    def further(self, confidences: Sequence[float]) -> bool:
        return True


def test_breadth_is_used_where_it_brings_more_than_it_costs_and_nowhere_else() -> None:
    """A draft that misses often has more to win by it than one that hardly ever does."""
    flat = {1: 1.0, 64: 1.001}
    for curve, stands, breadth in ((CPU, 6, 1), (GPU, 6, 2), (GPU, 10, 1), (flat, 6, 4)):
        known = AcceptanceEstimate()
        for i in range(60):
            known.learn(0.6, accepted=i % 10 < stands)
        knowledge = Knowledge({0: Costs(curve, {"tree": 0.02 * curve[1]})})
        knowledge.acceptance["tree", "greedy"] = known
        policy = Controller(knowledge, ["tree"], branching={"tree": Branching()})
        (plan,) = policy.plan([RequestState(0, 10, 0, "greedy")])
        steps = [step for step in plan.steps if not step.probe]
        assert [step.budget.leaves for step in steps] == ([] if curve is CPU else [breadth])
        assert all(s.budget.nodes == breadth * s.budget.depth for s in steps)
