"""Medusa heads: exact whatever they guess, in step with the target, refused by name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import gguf
import gguf_tools
import head_files
import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM, p_value_by_looks
from replies import ENDLESS, HELLO, WARM, exact, last

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.core.errors import DraftIncompatibleError, OutOfMemoryError, UnsupportedModelError
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Ask, Committed
from localspec.drafters.heads.medusa import MedusaChains, MedusaDrafter, MedusaModel, best_first
from localspec.loading import resources
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.fit import fit_files
from localspec.models.memory.planner import Wishes
from localspec.testing import Fixed, TableTarget

TRAINED = Path(__file__).parents[1] / "data" / "heads" / "medusa.gguf"
"""On the demo target."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and heads, of random weights."""
    folder = tmp_path_factory.mktemp("medusa")
    target = gguf_tools.write_llama(folder / "target.gguf", layers=2, seed=3, context=1024)
    return target, head_files.write_medusa(folder / "heads.gguf", own=(1,))


def options(pair: tuple[Path, Path], **changes: object) -> Options:
    settings = {"model": str(pair[0]), "draft": str(pair[1]), "draft_max": 3} | changes
    return Options(**{"drafter": ("medusa",), **settings})


# -- on llama.cpp ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 9])
def test_heads_leave_the_text_alone(pair: tuple[Path, Path], k: int) -> None:
    with Runtime.open(options(pair, draft_max=k)) as runtime:
        for sampling in (GREEDY, WARM, Sampling(repeat_penalty=1.3)):
            drafted = exact(runtime, dataclasses.replace(sampling, logit_bias=ENDLESS))
            assert drafted.stats.drafted > 20
            assert set(drafted.stats.by_drafter) == {"medusa"}


def test_heads_draft_for_a_recurrent_target_too(tmp_path: Path) -> None:
    """It has no branches, and states that go back are followed by passes that are wider."""
    target = head_files.write_hybrid(tmp_path / "hybrid.gguf", next_layers=0)
    pair = target, head_files.write_medusa(tmp_path / "heads.gguf")
    sampling = Sampling(temperature=1.0, logit_bias=ENDLESS)
    for k in (3, 12):
        with Runtime.open(options(pair, draft_max=k, drafter=("suffix", "medusa"))) as runtime:
            said = [
                last(runtime.reply(HELLO, sampling=sampling, seed=4, max_tokens=60, draft=draft))
                for draft in (False, True)
            ]
            assert said[0].tokens == said[1].tokens
            assert "medusa" in said[1].stats.by_drafter


@pytest.mark.parametrize("k", [1, 3])
def test_heads_draft_under_rejection_with_real_probabilities(
    pair: tuple[Path, Path], k: int
) -> None:
    with Runtime.open(options(pair, verifier="rejection", draft_max=k)) as runtime:
        sampling = Sampling(temperature=1.0, logit_bias=ENDLESS)
        reply = last(runtime.reply(HELLO, sampling=sampling, seed=1, max_tokens=60))
    assert len(reply.tokens) == 60
    assert 0 < reply.stats.accepted < reply.stats.drafted


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("verifier", ["match", "rejection"])
def test_heads_that_know_what_comes_are_right(tmp_path: Path, verifier: str, k: int) -> None:
    """A token or a state out of place by one would leave nothing of this."""
    target = head_files.write_mtp(tmp_path / "knowing.gguf", block=False, knowing=True)
    sampling = Sampling(temperature=0.0, logit_bias=ENDLESS)
    with Runtime.open(Options(str(target), drafter=("off",))) as runtime:
        plain = last(runtime.reply(HELLO, sampling=sampling, max_tokens=60))
    pair = target, knowing(tmp_path / "heads.gguf", target, plain.tokens)
    with Runtime.open(options(pair, draft_max=k, verifier=verifier)) as runtime:
        for _ in range(2):  # also where the prompt was read before
            reply = last(runtime.reply(HELLO, sampling=sampling, max_tokens=60))
            assert reply.tokens == plain.tokens
            # A plain round; one after the prompt's last token, of which the heads know nothing; one
            # at the end; and plain ones that are measured now and then.
            assert reply.stats.rounds <= 60 / (k + 1) + 4


def knowing(path: Path, target: Path, text: Sequence[int]) -> Path:
    """Heads that go on after each token of a text as a target does that sees no token but its last.

    The target's next token is the argmax of H x, x being the normalised embedding of the last one.
    So head k maps the x of a token to the one that follows k + 2 places further.
    """
    named = {tensor.name: tensor.data for tensor in gguf.GGUFReader(target).tensors}
    embeddings = np.array(named["token_embd.weight"], np.float64)
    states = embeddings / np.sqrt((embeddings**2).mean(axis=1, keepdims=True) + 1e-5)
    logits = states @ np.array(named["output.weight"], np.float64).T
    logits[:, : len(ENDLESS)] -= 100
    after = logits.argmax(axis=1)
    known = np.unique(text)
    outputs, following = [], after[known]
    for _ in range(3):
        following = after[following]
        wanted = 20 * np.eye(len(after))[following]
        outputs.append(np.linalg.lstsq(states[known], wanted, rcond=None)[0].T.astype(np.float32))
    return head_files.write_medusa(path, outputs=outputs)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_heads_that_were_trained_are_often_right_and_change_nothing(temperature: float) -> None:
    sampling = Sampling(temperature=temperature)
    options = Options("demo", str(TRAINED), drafter=("medusa",), draft_max=4)
    accepted = verified = 0
    with Runtime.open(options) as runtime:
        for text in ("Give me five tips for a good night's sleep.", "What is 12 + 30?"):
            plain, found = (
                last(runtime.reply([Message("user", text)], sampling=sampling, seed=5, draft=draft))
                for draft in (False, True)
            )
            assert found.tokens == plain.tokens
            accepted += found.stats.accepted
            verified += found.stats.verified
    assert accepted > 0.4 * verified > 20


def test_a_file_of_heads_is_used_without_being_told(pair: tuple[Path, Path]) -> None:
    with Runtime.open(Options(str(pair[0]), str(pair[1]), draft_max=3)) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
        assert runtime.info.draft == str(pair[1])
        assert runtime.info.draft_bytes == pair[1].stat().st_size
    assert "medusa" in reply.stats.by_drafter


def test_heads_of_another_target_are_refused_by_numbers(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    target = ModelFile(pair[0]).header

    def trouble(**settings: object) -> str:
        file = head_files.write_medusa(tmp_path / "h.gguf", **settings)
        return heads.head_problem(ModelFile(file).header, target) or ""

    assert trouble() == trouble(own=(0, 1, 2), blocks=2) == ""
    assert "hidden size of 96, and target.gguf has 64" in trouble(width=96)
    assert f"made for 77 tokens, and target.gguf has {target.n_vocab}" in trouble(n_vocab=77)
    assert "lacks medusa.1.res.0.bias" in trouble(leave_out=["medusa.1.res.0.bias"])
    assert "states 0 heads" in trouble(heads=0)
    assert "medusa.0.output.weight is 64x3" in trouble(outputs=[np.ones((3, 64), np.float32)])
    int8 = gguf.GGMLQuantizationType.I8
    assert "is I8, which cannot be computed with" in trouble(bias_as=int8)


def test_a_refusal_is_an_error_where_heads_were_named_and_a_notice_elsewhere(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    wide = pair[0], head_files.write_medusa(tmp_path / "wide.gguf", width=96)
    with pytest.raises(DraftIncompatibleError, match="hidden size of 96"):
        Runtime.open(options(wide))
    (tmp_path / "alone").mkdir()
    alone = gguf_tools.write_llama(tmp_path / "alone" / "target.gguf", layers=2, seed=3)
    with pytest.raises(DraftIncompatibleError, match="no medusa head"):
        Runtime.open(Options(str(alone), drafter=("medusa",)))
    with pytest.raises(DraftIncompatibleError, match="file of Medusa heads, not a model"):
        Runtime.open(options(pair, drafter=("model",), require_draft=True))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfMemoryError("no room for Medusa heads of 2.00 GB"), "medusa head does not fit"),
        (UnsupportedModelError("this build cannot"), "this build cannot"),
    ],
)
def test_heads_beside_a_target_are_found_and_where_they_fail_the_text_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    target = gguf_tools.write_llama(tmp_path / "target.gguf", seed=3)
    head = head_files.write_medusa(tmp_path / "target-medusa.gguf")
    with Runtime.open(Options(str(target), draft_max=3)) as runtime:
        assert runtime.info.draft == str(head)

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(resources, "opened", fails)
    with Runtime.open(Options(str(target), draft_max=3)) as runtime:
        assert any(words in n and "the text instead" in n for n in runtime.info.notices)
        assert runtime.info.draft is None
        assert last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=20)).tokens
    insisting = Options(str(target), str(head), drafter=("medusa",), draft_max=3)
    kind = OutOfMemoryError if isinstance(error, OutOfMemoryError) else DraftIncompatibleError
    with pytest.raises(kind, match=r"no room|cannot"):
        Runtime.open(insisting)


def test_heads_that_compute_no_numbers_are_given_up_and_the_text_goes_on(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    rows = ModelFile(pair[0]).header.n_vocab
    nothing = [np.full((rows, head_files.WIDTH), np.nan, np.float32)] * 3
    broken = pair[0], head_files.write_medusa(tmp_path / "broken.gguf", outputs=nothing)
    sampling = Sampling(temperature=1.0, logit_bias=ENDLESS)
    with Runtime.open(options(broken)) as runtime:
        said = [
            last(runtime.reply(HELLO, sampling=sampling, seed=2, max_tokens=20, draft=draft))
            for draft in (False, True)
        ]
    assert said[0].tokens == said[1].tokens
    assert said[1].stats.drafted == 0


def test_a_plan_counts_the_weights_and_the_copy_of_a_matrix_that_is_borrowed(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    own = head_files.write_medusa(tmp_path / "own.gguf", own=(0, 1, 2))
    target = ModelFile(pair[0]).header
    (matrix,) = [t.n_bytes for t in target.tensors if t.name == "token_embd.weight"]
    for file, borrowed in ((own, 0), (pair[1], matrix)):
        fit = fit_files(ModelFile(pair[0]), ModelFile(file), Wishes())
        assert fit.draft is not None
        assert fit.draft.weights == ModelFile(file).header.weight_bytes + borrowed


# -- on tables -------------------------------------------------------------------------------------


class TableStates:
    """States of a table's target that tell the last two tokens, of those that it has scored."""

    def __init__(self, target: TableTarget, first: int) -> None:
        self.target, self.first = target, first

    def span(self, seq: int) -> tuple[int, int]:
        end = len(self.target.cache.get(seq, ()))
        return (self.first, end) if end > self.first else (0, 0)

    def rows(self, seq: int, first: int, end: int) -> np.ndarray:
        tokens = self.target.cache[seq]
        return np.array([tokens[i - 1 : i + 1] for i in range(first, end)], np.float32)


class TableHeads:
    """Heads that know how the table goes on after two tokens, or nearly.

    The right q of head k is the distribution of the (k + 2)-nd token from now.
    """

    def __init__(self, table: tables.Table, v: int, count: int = 3, noise: float = 0.5) -> None:
        self.count, self.vocabulary, self.calls = count, v, []
        step = np.zeros((v * v, v * v))  # of pairs of tokens
        for a in range(v):
            for b in range(v):
                row = np.exp(np.asarray(table([a, b]), np.float64))
                step[a * v + b, b * v : (b + 1) * v] = row / row.sum()
        rng, ahead = np.random.default_rng(4), step
        self.logits = np.empty((count, v, v, v), np.float32)
        for k in range(count):
            ahead = ahead @ step
            q = ahead.reshape(v, v, v, v).sum(axis=2)
            self.logits[k] = np.log(q) + rng.normal(0, noise, (v, v, v))

    def guess(self, states: np.ndarray, heads: int) -> np.ndarray:
        self.calls.append((len(states), heads))
        a, b = states.astype(int).T
        return self.logits[:heads, a, b]


TARGET = tables.random_table(11, v=3, sharpness=1.0)
HEADS = TableHeads(TARGET, 3)
PROMPT = [0, 1]


def drafted(
    verifier: Verifier, sampling: Sampling, seed: int, n: int, policy: object, *, trees: bool = True
) -> tuple[list[int], Request]:
    """n tokens by the real loop, audited in every round; the prompt's own states are not known."""
    target = TableTarget(TARGET)
    target.read(0, PROMPT[:-1])
    model = MedusaModel(HEADS, TableStates(target, len(PROMPT) - 1), 3)
    favoured = verifier.favours
    drafter = MedusaDrafter(model, favoured) if trees else MedusaChains(model, favoured)
    request = Request(
        0,
        list(PROMPT),
        LogitsProcessor(sampling, 3),
        Noise(seed),
        n,
        verifier=verifier,
    )
    while request.running:
        decode_round([request], target, drafter, policy)
    return request.tokens[len(PROMPT) :], request


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("policy", [Fixed(3), Fixed(1), tables.Broad()])
def test_match_emits_what_plain_decoding_does(temperature: float, policy: object) -> None:
    sampling = dataclasses.replace(tables.WARM, temperature=temperature)
    for seed in range(5):
        plain, _ = drafted(Match(), sampling, seed, 40, Fixed(0))
        found, request = drafted(Match(), sampling, seed, 40, policy)
        assert found == plain
        assert request.tally.accepted > 0


def p_value(policy: object, runs: int, *, trees: bool) -> float:
    """p-value that three tokens after a first one follow the target's distribution.

    The first round is plain, so that the tokens that follow it are those that are drafted.
    """

    def said(seed: int) -> tuple[int, ...]:
        found, _ = drafted(Rejection(), tables.WARM, seed, 4, policy, trees=trees)
        return tuple(found)

    return p_value_by_looks(said, tables.exact_joint(TARGET, 4), runs)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "trees"), [(Fixed(3), False), (tables.Broad(), True)])
def test_rejection_follows_the_target_closely(policy: object, trees: bool) -> None:
    """An error of 14 % of each probability, as a mean square, is found nine times in ten."""
    assert p_value(policy, 5_600, trees=trees) > FALSE_ALARM


def medusa(
    favoured: Proposal = Proposal.COUPLED, first: int = 0, cached: Sequence[int] = (0, 1, 2)
) -> tuple[MedusaDrafter, TableTarget]:
    target = TableTarget(TARGET)
    target.read(0, cached)
    return MedusaDrafter(MedusaModel(HEADS, TableStates(target, first), 3), favoured), target


def ask(tokens: list[int], budget: Budget, sampling: Sampling = GREEDY, seq: int = 0) -> Ask:
    return Ask(seq, tokens, budget, Noise(0), LogitsProcessor(sampling, 3))


def test_head_k_guesses_k_places_after_the_pending_token() -> None:
    """The target holds 0, 1, 2 and the pending token is another: the state is that of the 2."""
    drafter, _ = medusa()
    (draft,) = drafter.propose([ask([0, 1, 2, 0], Budget.chain(5))])
    assert draft.tokens.tolist() == HEADS.logits[:, 1, 2].argmax(axis=1).tolist()


def test_it_says_what_it_makes_of_a_place_whose_state_is_at_hand() -> None:
    drafter, _ = medusa(first=1)
    for tokens in ([0, 1, 2, 0], [0, 1, 2]):
        a, b = tokens[-3:-1]
        row = drafter.logits(0, tokens)
        assert row is not None
        np.testing.assert_array_equal(row, HEADS.logits[0, a, b])
    assert drafter.logits(0, [0, 1]) is None


def test_one_computation_makes_a_draft_of_no_more_heads_than_it_may_be_deep() -> None:
    for budget, heads_asked in ((Budget.chain(2), 2), (Budget(9, 9, 3), 3), (Budget(4, 1, 4), 1)):
        drafter, _ = medusa()
        HEADS.calls.clear()
        (draft,) = drafter.propose([ask([0, 1, 2, 0], budget)])
        assert len(draft) > 0
        assert HEADS.calls == [(1, heads_asked)]


@pytest.mark.parametrize("budget", [Budget(9, 3, 3), Budget(4, 9, 2), Budget(8, 2, 4)])
@pytest.mark.parametrize("sampling", [GREEDY, tables.WARM])
def test_a_tree_keeps_its_budget(budget: Budget, sampling: Sampling) -> None:
    drafter, _ = medusa()
    (draft,) = drafter.propose([ask([0, 1, 2, 0], budget, sampling)])
    assert 3 <= len(draft) <= budget.nodes
    assert len(set(range(len(draft))) - {int(p) for p in draft.parents}) <= budget.leaves
    assert max(len(draft.prefix(i)) for i in range(len(draft))) <= min(3, budget.depth)


def test_nodes_go_to_the_most_probable_paths() -> None:
    """Brute force over all trees of three ranks and three levels says the same."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        shares = [np.sort(rng.dirichlet(np.full(5, 0.5)))[::-1][:3].tolist() for _ in range(3)]
        ranks = itertools.chain(*(itertools.product(range(3), repeat=n) for n in (1, 2, 3)))
        paths = {path: np.prod([shares[i][r] for i, r in enumerate(path)]) for path in ranks}
        best = sorted(paths, key=lambda path: -paths[path])[:9]
        widths = [n for n in (sum(len(p) == level for p in best) for level in (1, 2, 3)) if n]
        assert best_first(shares, 9, 99) == widths
    assert best_first([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], 3, 1) == [1, 1, 1]
    assert best_first([[0.4, 0.3, 0.2, 0.1], [0.2, 0.1]], 4, 4) == [4]
    assert best_first([[0.4, 0.3, 0.2, 0.1], [0.2, 0.1]], 4, 2) == [2, 2]


def test_penalties_see_the_tokens_drafted_before() -> None:
    sampling = Sampling(temperature=0.0, presence_penalty=100.0)
    for budget in (Budget.chain(3), Budget(4, 2, 2)):
        drafter, _ = medusa(cached=[2, 2, 2])
        (draft,) = drafter.propose([ask([2, 2, 2, 2], budget, sampling)])
        assert set(draft.prefix(1)) == {0, 1}


def test_without_states_nothing_is_drafted_and_the_next_round_has_them() -> None:
    drafter, target = medusa(first=3)
    known = [0, 1, 2, 0]
    for budget in (Budget.chain(3), Budget(9, 3, 3)):
        assert len(drafter.propose([ask(known, budget)])[0]) == 0
    target.read(0, [0])
    known.append(1)
    drafter.commit([Committed(0, known, [1])])
    assert len(drafter.propose([ask(known, Budget.chain(3))])[0]) == 3


def test_of_several_requests_those_that_can_are_drafted_for() -> None:
    drafter, target = medusa()
    target.read(1, [2, 2])
    asks = [ask([0, 1, 2, 0], Budget.chain(3)), ask([2], Budget.chain(3), seq=2)]
    asks.append(ask([2, 2, 1], Budget.chain(2), seq=1))
    drafts = drafter.propose(asks)
    assert [len(draft) for draft in drafts] == [3, 0, 2]
    assert drafts[2].tokens.tolist() == HEADS.logits[:2, 2, 2].argmax(axis=1).tolist()


def test_a_look_judges_head_0_on_what_was_said_since_there_are_states() -> None:
    drafter, target = medusa(first=2, cached=[0, 1])
    known = [0, 1, 2]
    drafter.commit([Committed(0, known, known)])
    target.read(0, [2, 0, 1, 1, 2])
    known += [0, 1, 1, 2, 0]
    look = dataclasses.replace(ask(known, Budget(0, 0, 0)), probe=True)
    assert len(drafter.propose([look])[0]) == 0
    known.append(1)
    target.read(0, [0])
    evidence = drafter.commit([Committed(0, known, [1])])
    right = [
        known[i] == int(HEADS.logits[0, known[i - 3], known[i - 2]].argmax()) for i in range(4, 8)
    ]
    assert [e.accepted for e in evidence] == right
    assert {e.source for e in evidence} == {"medusa"}


def test_the_books_follow_what_stood() -> None:
    drafter, target = medusa()
    known = [0, 1, 2, 0]
    drafter.commit([Committed(0, known, known)])
    assert drafter.length(0) == 3
    for tokens in ([1], [2, 0, 1, 1], [0]):
        (draft,) = drafter.propose([ask(known, Budget.chain(3))])
        target.read(0, [known[-1], *tokens[:-1]])
        known += tokens
        evidence = drafter.commit([Committed(0, known, tokens, draft=draft)])
        assert 1 <= len(evidence) <= len(tokens)
        assert drafter.length(0) <= len(known)
    drafter.commit([Committed(0, [0, 2], [2])])
    assert drafter.length(0) <= 1
    drafter.close(0)
    assert drafter.length(0) == 0
