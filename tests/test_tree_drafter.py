"""Trees from a draft model: their shape, their order, their books."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from policy_world import CPU, GPU
from tables import TableTarget

from localspec.drafters import Ask, Committed
from localspec.drafters.tree import TreeDrafter
from localspec.noise import Noise, Stream
from localspec.policy.auto import Auto
from localspec.policy.costs import Costs
from localspec.policy.stored import Knowledge
from localspec.policy.survival import Survival
from localspec.sampling import GREEDY, Processor, Sampling
from localspec.values import Budget, Draft, Proposal, Standing

TABLE = tables.random_table(5, v=6)
WARM = tables.WARM


def drafter(favoured: Proposal = Proposal.COUPLED) -> TreeDrafter:
    return TreeDrafter(TableTarget(TABLE), 6, favoured)


def ask(tokens: list[int], budget: Budget, sampling: Sampling = GREEDY) -> Ask:
    return Ask(0, tokens, budget, Noise(0), Processor(sampling, 6))


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


def test_greedy_chains_are_those_of_the_table() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget.chain(3))])
    known = [0, 1]
    for token in draft.tokens.tolist():
        assert token == int(np.argmax(TABLE(known)))
        known.append(token)


def test_coupled_children_begin_with_what_the_target_would_draw_from_q() -> None:
    (draft,) = drafter().propose([ask([0, 1], Budget(8, 2, 4), WARM)])
    assert draft.proposal is Proposal.COUPLED
    q = Processor(WARM, 6)(TABLE([0, 1]), [])
    assert draft.tokens[0] == Noise(0).draw(q, 2, Stream.SAMPLE)


def test_siblings_for_rejection_are_drawn_without_replacement() -> None:
    (draft,) = drafter(Proposal.SAMPLED).propose([ask([0, 1], Budget(8, 2, 4), WARM)])
    assert draft.proposal is Proposal.WITHOUT_REPLACEMENT
    assert draft.probs is not None
    for node in range(-1, len(draft)):
        children = draft.tokens[draft.children(node)].tolist()
        assert len(children) == len(set(children))


def test_the_cache_is_a_prefix_of_what_was_committed() -> None:
    trees = drafter()
    tokens = [0, 1, 2]
    trees.commit([Committed(0, tokens, tokens, {})])
    assert trees.length(0) == 2
    trees.propose([ask(tokens, Budget(12, 4, 3))])
    assert trees.length(0) == 2
    tokens += [4, 5]
    trees.commit([Committed(0, tokens, [4, 5], {})])
    trees.propose([ask(tokens, Budget(12, 4, 3))])
    assert trees.length(0) == 4
    trees.commit([Committed(0, [0, 3], [3], {})])
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
    evidence = trees.commit([Committed(0, tokens, [stood, missing], {})])
    assert evidence[0].stood
    assert not any(e.stood for e in evidence[1:])
    assert len(evidence) == (2 if below else 1)


def test_breadth_is_used_where_it_is_nearly_free_and_nowhere_else() -> None:
    for curve, breadth in ((CPU, 1), (GPU, 2), ({1: 1.0, 64: 1.05}, 4)):
        known = Survival()
        for _ in range(60):
            known.learn(0, 0.97, stood=True)
        knowledge = Knowledge({0: Costs(curve, {"tree": 0.02 * curve[1]})})
        knowledge.survival["tree", "greedy"] = known
        policy = Auto(knowledge, ["tree"], branching=["tree"])
        (plan,) = policy.plan([Standing(0, 10, 0, "greedy")])
        (step,) = plan.steps
        assert step.budget.leaves == breadth
        assert step.budget.nodes == breadth * step.budget.depth
