"""Trees from heads: read as their paths would be, exact whatever their shape, gone in the end."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import head_files
import numpy as np
import pytest
import tables
from frequencies import DRAFT, FALSE_ALARM, TARGET, p_value
from head_pairs import Pair, loaded
from heads.compose import compose_mtp
from replies import ENDLESS, HELLO, WARM, exact, last
from stacks import Following, prompt

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.bench.exactness import verify
from localspec.bench.workloads import VERIFY
from localspec.core.errors import ContextFullError, DecodeError, DraftIncompatibleError, Interrupted
from localspec.core.files.paths import DEMO_DIR
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Distribution, Draft, Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection
from localspec.drafters.base import Ask, Committed
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter, HeadTreeModel, best_of
from localspec.drafters.model.tree_builder import Slot, TreeBuilder, ranked
from localspec.llama.heads.base import Head
from localspec.loading.selection import read_headers, select
from localspec.models.gguf.model_file import ModelFile

FEW = Sampling(temperature=1.0, logit_bias=tuple((token, 50.0) for token in range(3, 9)))
"""Six tokens alone: whatever is drafted is often right, and on any branch."""
KINDS = ("mtp", "eagle3, borrowing", "eagle3, few words")
BRANCHES = 8
WORDS = 115
"""Ids that the head of few words has, too."""


def with_trees(pair: Pair, **changes: object) -> Options:
    """Its options, with trees asked for."""
    return pair.options(**{"drafter": ("tree",)} | changes)


# -- exact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_trees_of_a_head_leave_the_text_alone(head_pairs: dict[str, Pair], kind: str) -> None:
    endless = [
        dataclasses.replace(sampling, logit_bias=ENDLESS)
        for sampling in (GREEDY, WARM, Sampling(repeat_penalty=1.3))
    ]
    with Runtime.open(with_trees(head_pairs[kind])) as runtime:
        for sampling in (*endless, FEW):
            drafted = exact(runtime, sampling)
            assert drafted.stats.drafted > 6 * drafted.stats.rounds
            assert set(drafted.stats.by_drafter) == {head_pairs[kind].drafter}


@pytest.mark.parametrize("verifier", ["match", "rejection"])
def test_a_layer_that_knows_what_comes_is_always_right_with_trees_too(
    tmp_path: Path, verifier: str
) -> None:
    """A token or a state out of place by one would leave nothing of this."""
    sampling = Sampling(temperature=0.0, logit_bias=ENDLESS)
    pair = Pair("mtp", head_files.write_mtp(tmp_path / "knowing.gguf", knowing=True))
    with Runtime.open(with_trees(pair, draft_max=4, verifier=verifier)) as runtime:
        for turn in ("one", "two"):
            said = [Message("user", turn)]
            reply = last(runtime.reply(said, sampling=sampling, seed=3, max_tokens=60))
            assert reply.stats.accepted == reply.stats.verified > 20


class Drawn(HeadTreeDrafter):
    """A wrong drafter: it reranks tokens that were drawn, each by its own probability."""

    def _proposal(self, ask: Ask) -> Proposal:
        return Proposal.WITHOUT_REPLACEMENT

    def _candidates(
        self, tree: TreeBuilder, level: dict[int, Distribution]
    ) -> list[tuple[Slot, int, Distribution]]:
        place = tree.ask.position + len(tree.confidences)
        found = [
            (Slot(node, rank, tree.score(node) * q.probability(token)), token, q)
            for node, q in level.items()
            for rank, token in enumerate(ranked(q, tree.ask, place, node, tree.proposal))
        ]
        return sorted(found, key=lambda candidate: -candidate[0].score)


def test_reranked_trees_follow_the_target_under_rejection() -> None:
    drafter = tables.growing(DRAFT, Proposal.SAMPLED)
    assert p_value(drafter, Rejection(), 1_700, tables.Broad()) > FALSE_ALARM


@pytest.mark.slow
def test_reranked_trees_follow_the_target_closely() -> None:
    """An error of 12 % of each probability, as a mean square, is found nine times in ten."""
    drafter = tables.growing(DRAFT, Proposal.SAMPLED)
    assert p_value(drafter, Rejection(), 5_600, tables.Broad()) > FALSE_ALARM


def test_this_would_tell_if_drawn_tokens_were_reranked() -> None:
    drawn = Drawn(tables.GrowingTable(DRAFT), Proposal.SAMPLED, "head")
    assert p_value(drawn, Rejection(), 600, tables.Broad()) < 1e-9


@pytest.mark.parametrize("sampling", [GREEDY, tables.WARM, Sampling(temperature=0.7)])
def test_reranked_trees_give_plain_text_under_match(sampling: Sampling) -> None:
    for seed in range(20):
        plain = tables.decode(
            TARGET,
            tables.shaped_drafter("argmax chain", DRAFT),
            Match(),
            seed,
            30,
            sampling=sampling,
        )
        drafter = tables.growing(DRAFT, Proposal.COUPLED)
        said = tables.decode(
            TARGET, drafter, Match(), seed, 30, sampling=sampling, policy=tables.Broad()
        )
        assert said == plain


# -- shapes ----------------------------------------------------------------------------------------

TABLE = tables.random_table(5, v=6)


def ask(tokens: list[int], budget: Budget, sampling: Sampling = GREEDY) -> Ask:
    return Ask(0, tokens, budget, Noise(0), LogitsProcessor(sampling, 6))


def ends(draft: Draft) -> int:
    return len(set(range(len(draft))) - {int(p) for p in draft.parents})


@pytest.mark.parametrize(
    "budget", [Budget(12, 4, 6), Budget(8, 2, 2), Budget(40, 4, 9), Budget(7, 3, 3)]
)
@pytest.mark.parametrize("sampling", [GREEDY, tables.WARM])
def test_a_tree_keeps_its_budget(budget: Budget, sampling: Sampling) -> None:
    (draft,) = tables.growing(TABLE, Proposal.COUPLED).propose([ask([0, 1], budget, sampling)])
    assert budget.depth < len(draft) <= budget.nodes
    assert 2 <= ends(draft) <= budget.leaves
    assert max(len(draft.prefix(i)) for i in range(len(draft))) <= budget.depth
    assert draft.proposal is Proposal.DETERMINISTIC


def test_the_nodes_are_those_of_the_most_probable_paths() -> None:
    """Brute force says the same where there is room to read all of the first level."""
    table, processor = tables.random_table(6, v=4), LogitsProcessor(tables.WARM, 4)
    (draft,) = tables.growing(table, Proposal.COUPLED).propose(
        [Ask(0, [0, 1], Budget(8, 2, 99), Noise(0), processor)]
    )
    paths: dict[tuple[int, ...], float] = {}
    for a in range(4):
        paths[a,] = processor(table([0, 1]), []).probability(a)
        for b in range(4):
            paths[a, b] = paths[a,] * processor(table([0, 1, a]), []).probability(b)
    best = sorted(paths, key=lambda path: -paths[path])[:8]
    assert {tuple(draft.prefix(i)) for i in range(len(draft))} == set(best)


def test_parents_stay_and_leaves_are_counted() -> None:
    tree = TreeBuilder(ask([0], Budget(9, 3, 9)), Proposal.DETERMINISTIC)
    tree.parents, tree.scores = [-1, -1, 0, 0, 2, 1], [0.6, 0.4, 0.5, 0.1, 0.45, 0.3]
    tree.tokens, tree.q = [*range(6)], []
    assert best_of(tree, 4, 9) == [0, 1, 2, 4]
    assert best_of(tree, 6, 1) == [0, 2, 4]
    assert best_of(tree, 6, 2) == [0, 1, 2, 4, 5]
    assert best_of(tree, 9, 9) == [*range(6)]


def test_of_a_single_leaf_it_makes_a_chain_and_of_several_requests_chains() -> None:
    drafter = tables.growing(TABLE, Proposal.COUPLED)
    (draft,) = drafter.propose([ask([0, 1], Budget.chain(3), tables.WARM)])
    assert draft.is_chain
    assert draft.proposal is Proposal.COUPLED
    both = [ask([0, 1], Budget(6, 2, 3)), dataclasses.replace(ask([2], Budget(6, 2, 3)), seq=1)]
    assert all(d.is_chain and len(d) == 2 for d in drafter.propose(both))


# -- on llama.cpp ----------------------------------------------------------------------------------


@dataclass
class Stack(Following):
    """A target whose cache branches, and a head that grows trees."""

    head: Head
    model: HeadTreeModel

    def rounds(self, tokens: list[int], n: int, seed: int = 5, depth: int = 3) -> int:
        """Some rounds after a prompt; returns the tokens accepted."""
        request = Request(
            0,
            tokens,
            LogitsProcessor(FEW, self.n_vocab),
            Noise(seed),
            500,
        )
        for _ in range(n):
            decode_round([request], self.target, self.drafter, Trees(depth))
            self.context.audit()
            self.head.audit()
        return request.tally.accepted


class Trees(tables.Broad):
    """Trees of so many levels."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def plan(self, states: Sequence[object]) -> list[object]:  # type: ignore[override]
        (plan,) = super().plan(states[:1])  # type: ignore[arg-type]
        step = dataclasses.replace(plan.steps[0], budget=Budget(3 * self.depth, self.depth, 6))
        return [dataclasses.replace(plan, steps=(step,))]


@pytest.fixture
def stack(head_pairs: dict[str, Pair]) -> Iterator[Callable[..., Stack]]:
    with contextlib.ExitStack() as closing:

        def build(kind: str, n_ctx: int = 1024) -> Stack:
            at = closing.enter_context(loaded(head_pairs[kind], n_ctx, BRANCHES))
            model = HeadTreeModel(at.head, at.stored, at.model.n_vocab)
            drafter = HeadTreeDrafter(model, Proposal.COUPLED, "head")
            return Stack(at.context, at.target, drafter, at.model.n_vocab, at.head, model)

        yield build


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_is_read_as_its_path_would_be_alone(stack: Callable[..., Stack], kind: str) -> None:
    """Sequences are parted, ended and used again: the fourth level hangs on a side branch."""
    made, tokens, random = stack(kind), prompt(40, below=WORDS), np.random.default_rng(4)
    made.read(tokens)
    levels = [[0, 0, 0], [0, 0, 2, 1], [3, 3, 3, 0, 1], [4, 2, 2, 2, 2, 0], [5, 1, 1]]
    levels += [[2] * 9, [8, 8, 8, 7, 0]]
    for _ in range(2):  # a second tree after the first is gone
        assert made.drafter.logits(0, tokens) is not None
        paths: list[list[int]] = [[]] * 9
        grown: list[tuple[list[int], np.ndarray]] = []
        for above in levels:
            new = random.integers(3, WORDS, len(above)).tolist()
            paths = [[*paths[i], token] for i, token in zip(above, new, strict=True)]
            rows = made.model.grow(new, above)
            grown += [(path, row.copy()) for path, row in zip(paths, rows, strict=True)]
        made.model.prune()
        made.head.audit()
        for path, row in grown:
            alone = made.drafter.logits(0, [*tokens, *path])
            assert alone is not None
            known = np.isfinite(row)
            np.testing.assert_allclose(row[known], alone[known], atol=0.02)
        made.drafter.logits(0, tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_after_any_rounds_the_head_knows_what_a_fresh_one_would(
    stack: Callable[..., Stack], kind: str
) -> None:
    """Rounds that accept none, some or all, on any branch, then a turn with part of the prefix."""
    used, tokens = stack(kind), prompt(30, below=WORDS)
    used.read(tokens)
    assert used.rounds(tokens, 25) > 12
    second = [*tokens[:-6], *prompt(20, seed=1, below=WORDS)]
    used.target.truncate(0, len(tokens) - 6)
    used.read(second)
    used.rounds(second, 15, seed=9, depth=5)
    fresh = stack(kind)
    fresh.read(second)
    assert used.drafter.length(0) <= len(second)
    rows = [made.drafter.logits(0, second) for made in (used, fresh)]
    assert rows[0] is not None
    assert rows[1] is not None
    known = np.isfinite(rows[1])
    np.testing.assert_allclose(rows[0][known], rows[1][known], atol=0.02)


def test_chains_and_trees_take_turns_on_one_cache(stack: Callable[..., Stack]) -> None:
    made, tokens = stack("mtp"), prompt(30, below=WORDS)
    made.read(tokens)
    for turn in range(6):
        made.rounds(tokens, 3, seed=turn)
        made.play(tokens, 3, 4, WARM, seed=turn)
        if turn == 3:
            made.drafter.close(0)
    assert made.drafter.length(0) > 30


def test_an_interrupted_tree_is_gone_and_the_next_one_grows(stack: Callable[..., Stack]) -> None:
    made, tokens = stack("mtp"), prompt(30, below=WORDS)
    made.read(tokens)
    request = ask(tokens, Budget(12, 4, 6))
    request = dataclasses.replace(request, processor=LogitsProcessor(GREEDY, made.n_vocab))
    (whole,) = made.drafter.propose([request])

    class Stopping:
        def more(self, confidences: Sequence[float]) -> bool:
            if len(confidences) == 3:
                made.head.stop.set()
            return True

        def further(self, confidences: Sequence[float]) -> bool:
            return True

    with pytest.raises(Interrupted):
        made.drafter.propose([dataclasses.replace(request, pace=Stopping())])
    made.head.stop.clear()
    made.head.audit()
    (again,) = made.drafter.propose([request])
    assert again.tokens.tolist() == whole.tokens.tolist()
    made.drafter.commit([Committed(0, tokens, [])])


def test_trees_go_on_to_the_last_token_of_a_context(stack: Callable[..., Stack]) -> None:
    made, tokens = stack("eagle3, borrowing", n_ctx=256), prompt(200, below=WORDS)
    made.read(tokens)
    while len(tokens) < made.target.capacity:
        made.rounds(tokens, 1)
    assert made.head.length(0) <= made.head.capacity


def test_more_nodes_or_tokens_than_there_is_room_for_are_refused(
    stack: Callable[..., Stack],
) -> None:
    made, tokens = stack("mtp", n_ctx=256), prompt(250, below=WORDS)
    made.read(tokens)
    made.drafter.logits(0, tokens)
    with pytest.raises(DecodeError, match="10 pairs"):
        made.model.grow([5] * 10, [0] * 10)
    made.model.grow([5], [0])
    for _ in range(made.head.capacity - len(tokens)):
        made.model.grow([5, 6], [0, 0])
    with pytest.raises(ContextFullError):
        made.model.grow([5, 6], [0, 1])
    made.model.prune()
    made.head.audit()


# -- asked for -------------------------------------------------------------------------------------


def test_a_tree_is_of_what_the_pair_brings(head_pairs: dict[str, Pair]) -> None:
    for kind in KINDS:
        pair = head_pairs[kind]
        files = read_headers(ModelFile(pair.target), pair.head and ModelFile(pair.head))
        assert select(with_trees(pair), files).names == (pair.drafter,)
        both = with_trees(pair, drafter=("suffix", "tree"))
        assert select(both, files).names == ("suffix", pair.drafter)
    plain = head_pairs["eagle3, borrowing"].target
    alone = read_headers(ModelFile(plain), None)
    assert select(Options(str(plain), drafter=("tree",)), alone).names == ("tree",)


def test_a_given_length_means_chains_unless_a_tree_is_asked_for(
    head_pairs: dict[str, Pair],
) -> None:
    for drafter, trees in ((("mtp",), False), (None, False), (("tree",), True)):
        with Runtime.open(with_trees(head_pairs["mtp"], drafter=drafter)) as runtime:
            reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=30))
            drafted = reply.stats.by_drafter["mtp"].drafted
            assert (drafted > 4 * reply.stats.rounds) is trees


def test_without_a_given_length_breadth_is_left_to_the_controller(
    head_pairs: dict[str, Pair], stack: Callable[..., Stack]
) -> None:
    branches, names = stack("mtp").context.branches, ("suffix", "mtp")
    files = read_headers(ModelFile(head_pairs["mtp"].target), None)

    def growing(options: Options) -> set[str]:
        return set(select(options, files).branching(names, branches))

    assert growing(Options()) == {"mtp"}
    assert growing(Options(draft_max=3)) == set()
    assert growing(with_trees(head_pairs["mtp"])) == {"mtp"}


def test_a_target_that_cannot_branch_gets_chains_and_says_so_to_who_asked(
    head_pairs: dict[str, Pair],
) -> None:
    pair = head_pairs["mtp on a hybrid"]
    for drafter, told in ((("tree",), True), (None, False)):
        with Runtime.open(with_trees(pair, drafter=drafter)) as runtime:
            assert any("cannot branch" in n for n in runtime.info.notices) is told
            reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=30))
            assert "mtp" in reply.stats.by_drafter


def test_heads_that_draft_chains_alone_say_so_to_who_asked_for_a_tree(tmp_path: Path) -> None:
    chained = head_files.write_chained(tmp_path / "chained.gguf")
    with Runtime.open(Options(str(chained), drafter=("tree",), draft_max=3)) as runtime:
        assert any("chains, not trees" in notice for notice in runtime.info.notices)
    dense = gguf_tools.write_llama(tmp_path / "dense.gguf", layers=4, seed=3, context=1024)
    block = head_files.write_dflash(tmp_path / "block.gguf")
    with pytest.raises(DraftIncompatibleError, match="DFlash head, not a model"):
        Runtime.open(Options(str(dense), str(block), drafter=("tree",), require_draft=True))


# -- trained heads ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "least"), [("mtp", 0.85), ("eagle3", 0.65)])
def test_trained_heads_are_exact_and_mostly_right_and_their_trees_longer_than_chains(
    tmp_path: Path, kind: str, least: float
) -> None:
    """12 prompts of 64 tokens, at three temperatures."""
    data, target = Path(__file__).parents[1] / "data" / "heads", DEMO_DIR / "target.gguf"
    pair = Pair(kind, target, data / "eagle3.gguf")
    if kind == "mtp":
        compose_mtp(target, data / "mtp-block.gguf", tmp_path / "carrying.gguf")
        pair = Pair(kind, tmp_path / "carrying.gguf")
    asked = [Sampling(temperature=t) for t in (0.0, 0.7, 1.0)]
    emitted: dict[str, float] = {}
    for drafter in (kind, "tree"):
        with Runtime.open(with_trees(pair, drafter=(drafter,), draft_max=4)) as runtime:
            result = verify(runtime, VERIFY[::4], asked, max_tokens=64, seed=1)
            assert result.exact
            emitted[drafter] = sum(found.tokens / found.rounds for found in result.comparisons)
            if drafter == kind:
                assert all(found.acceptance > least for found in result.comparisons)
    assert emitted["tree"] > emitted[kind]
