"""Heads that attend to the target's own KV cache: exact, and the target's cache is left alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import head_files
import numpy as np
import pytest
from gguf_tools import foreign_vocabulary
from replies import ENDLESS, HELLO, WARM, exact, last
from stacks import prompt

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.core.errors import (
    DecodeError,
    DraftIncompatibleError,
    UnreadyError,
    UnsupportedModelError,
)
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, Evidence, Outcome, RequestState
from localspec.core.target import Work
from localspec.core.values import Proposal, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.heads.head_drafter import ForwardOnlyDrafter
from localspec.drafters.heads.shared_kv import SharedModel
from localspec.llama.context import Context
from localspec.llama.heads.hidden_states import NextStates, StoredStates
from localspec.llama.heads.shared_kv import Assistant
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import sizes_of
from localspec.testing import Fixed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of Gemma 4's kind and its assistant, of random weights."""
    made = tmp_path_factory.mktemp("assistants")
    head_files.write_gemma(made / "target.gguf")
    head_files.write_assistant(made / "assistant.gguf")
    return made


def options(folder: Path, **changes: object) -> Options:
    settings = {"draft": str(folder / "assistant.gguf"), "drafter": ("mtp",), "draft_max": 3}
    return Options(str(folder / "target.gguf"), **settings | changes)


def test_an_assistant_leaves_the_text_alone(folder: Path) -> None:
    with Runtime.open(options(folder)) as runtime:
        for sampling in (GREEDY, WARM, Sampling(repeat_penalty=1.3)):
            drafted = exact(runtime, sampling)
            assert drafted.stats.drafted > 20
            assert set(drafted.stats.by_drafter) == {"mtp"}


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
@pytest.mark.parametrize("verifier", ["match", "rejection"])
def test_an_assistant_that_knows_what_comes_is_always_right(
    tmp_path: Path, verifier: str, kv_type: str
) -> None:
    """A token out of place by one would leave nothing of this."""
    knowing = head_files.write_gemma(tmp_path / "target.gguf", knowing=True, per_layer=0)
    head_files.write_assistant(tmp_path / "assistant.gguf", knows=knowing)
    chosen = options(tmp_path, draft_max=4, verifier=verifier, kv_type=kv_type)
    with Runtime.open(chosen) as runtime:
        for turn, temperature in (("one", 0.0), ("two", 1.0)):
            sampling = Sampling(temperature=temperature, logit_bias=ENDLESS)
            said = [Message("user", turn)]
            reply = last(runtime.reply(said, sampling=sampling, seed=3, max_tokens=60))
            assert reply.stats.accepted == reply.stats.verified > 20


def test_a_head_beside_the_target_is_used_without_being_told(folder: Path) -> None:
    chosen = options(folder, drafter=None)
    with Runtime.open(chosen) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
        assert runtime.info.draft == chosen.draft
    assert "mtp" in reply.stats.by_drafter


# -- the target's cache ----------------------------------------------------------------------------


@dataclass
class Stack:
    """Target, states, assistant and drafter, without a runtime."""

    context: Context
    target: LlamaTarget
    stored: StoredStates
    model: SharedModel
    head: Assistant
    n_vocab: int


@pytest.fixture
def stack(folder: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A stack of one sequence, or of as many as the test is parametrized with."""
    n_seq = getattr(request, "param", 1)
    model = Model(folder / "target.gguf")
    context = Context(model, n_ctx=256, n_seq=n_seq, n_batch=64, threads=1)
    own = Model(folder / "assistant.gguf", alone=False)
    head = Assistant(own, context, n_ctx=256, threads=1)
    stored = StoredStates(NextStates(head_files.WIDTH), window=64)
    shared = SharedModel(head, stored, model.n_vocab)
    target = LlamaTarget(context, stored)
    yield Stack(context, target, stored, shared, head, model.n_vocab)
    for part in (head, context, own, model):
        part.close()


def test_guesses_are_of_the_token_and_the_state_before_it(folder: Path, tmp_path: Path) -> None:
    """Against numpy, with layers that add nothing: the target's state first, then the head's."""
    path = head_files.write_assistant(tmp_path / "silent.gguf", silent=True)
    weights = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    embedded = next(
        np.array(t.data) * head_files.WIDTH**0.5
        for t in gguf.GGUFReader(folder / "target.gguf").tensors
        if t.name == "token_embd.weight"
    )

    def guess(token: int, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into = weights["nextn.pre_projection.weight"] @ np.concatenate([embedded[token], state])
        normed = into / np.sqrt(np.mean(into**2) + 1e-5)
        after = weights["nextn.post_projection.weight"] @ normed
        return weights["token_embd.weight"] @ normed, after

    model, own = Model(folder / "target.gguf"), Model(path, alone=False)
    context = Context(model, n_ctx=256, n_batch=64, threads=1)
    head, stored = Assistant(own, context, n_ctx=256, threads=1), StoredStates(NextStates(64))
    target, tokens = LlamaTarget(context, stored), prompt(30)
    target.read(0, tokens[:-1])
    shared = SharedModel(head, stored, model.n_vocab)
    state = stored.rows(0, 28, 29)[0]
    for i, token in enumerate((tokens[-1], 7, 8)):
        ((row,),) = shared.extend([(0, [token] if i else tokens, 1)])
        expected, state = guess(token, state)
        np.testing.assert_allclose(row, expected, atol=0.02)
    for part in (head, context, own, model):
        part.close()


def test_guesses_change_nothing_in_the_target(stack: Stack) -> None:
    tokens = prompt(40)
    stack.target.read(0, tokens[:-1])
    before = bytes(stack.target.state(0))
    stack.model.extend([(0, tokens, 1)])
    for guess in (7, 8, 9):
        stack.model.extend([(0, [guess], 1)])
    stack.model.truncate(0, 0)
    stack.head.truncate(0, 0)
    assert bytes(stack.target.state(0)) == before
    stack.context.audit()
    assert stack.target.length(0) == 39


def test_guesses_that_are_cut_short_leave_no_trace(stack: Stack) -> None:
    tokens = prompt(20)
    stack.target.read(0, tokens[:-1])
    (expected,) = (rows.copy() for rows in stack.model.extend([(0, tokens, 1)]))
    stack.model.truncate(0, 0)
    stack.head.stop.set()
    with pytest.raises(Exception, match="interrupted"):
        stack.model.extend([(0, tokens, 1)])
    stack.head.stop.clear()
    stack.context.audit()
    (found,) = stack.model.extend([(0, tokens, 1)])
    np.testing.assert_array_equal(found, expected)


def test_after_any_rounds_the_guesses_are_those_of_a_fresh_chain(stack: Stack) -> None:
    """Rounds that accept none, some or all, then a second turn with part of the prefix."""
    drafter = ForwardOnlyDrafter(stack.model, Proposal.COUPLED, "mtp")
    tokens = prompt(30)
    stack.target.read(0, tokens[:-1])
    request = Request(
        0,
        tokens,
        LogitsProcessor(Sampling(temperature=4.0), stack.n_vocab),
        Noise(5),
        100,
    )
    for _ in range(30):
        decode_round([request], stack.target, drafter, Fixed(3))
        stack.context.audit()
    assert 0 < request.tally.accepted < request.tally.drafted
    second = [*tokens[:-6], *prompt(20, seed=1)]
    stack.target.truncate(0, len(tokens) - 6)
    stack.target.read(0, second[stack.target.length(0) : -1])
    used = drafter.logits(0, second)
    assert used is not None
    used = used.copy()
    fresh = SharedModel(stack.head, stack.stored, stack.n_vocab)
    (rows,) = fresh.extend([(0, second, 1)])
    np.testing.assert_array_equal(used, rows[0])


@pytest.mark.parametrize("stack", [2], indirect=True)
def test_sequences_are_guessed_for_in_the_same_passes(stack: Stack) -> None:
    texts = [prompt(20, seed=1), prompt(33, seed=2)]
    alone = []
    for seq, text in enumerate(texts):
        stack.target.read(seq, text[:-1])
        rows = [stack.model.extend([(seq, text, 1)])[0][0].copy()]
        rows.append(stack.model.extend([(seq, [5], 1)])[0][0].copy())
        alone.append(rows)
        stack.model.truncate(seq, 0)
    together = [rows[0].copy() for rows in stack.model.extend([(i, texts[i], 1) for i in (0, 1)])]
    then = [rows[0].copy() for rows in stack.model.extend([(0, [5], 1), (1, [5], 1)])]
    for seq in (0, 1):
        np.testing.assert_allclose(together[seq], alone[seq][0], atol=1e-3)
        np.testing.assert_allclose(then[seq], alone[seq][1], atol=1e-3)
    stack.context.audit()


def test_what_the_target_has_read_already_is_not_guessed(stack: Stack) -> None:
    tokens = prompt(20)
    stack.target.read(0, tokens[:-1])
    with pytest.raises(UnreadyError):
        stack.model.extend([(0, tokens, 3)])
    stack.stored.cut(0, 0)  # as after a cache that came from disk
    with pytest.raises(UnreadyError):
        stack.model.extend([(0, tokens, 1)])
    stack.target.score([Work(0, tokens[-1], no_draft("off"))])
    stack.target.keep(0, ())
    assert stack.model.extend([(0, [*tokens, 5], 1)])[0].shape == (1, stack.n_vocab)


class Looking(Fixed):
    """Drafts nothing and has the drafter look."""

    def __init__(self, seen: list[Evidence]) -> None:
        super().__init__(0)
        self._seen = seen

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((DraftStep(ANY, Budget(0, 0, 0), probe=True),)) for _ in states]

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self._seen += evidence


def test_a_look_is_judged_by_what_comes_next(stack: Stack) -> None:
    drafter = ForwardOnlyDrafter(stack.model, Proposal.COUPLED, "mtp")
    tokens = prompt(20)
    stack.target.read(0, tokens[:-1])
    request = Request(
        0,
        tokens,
        LogitsProcessor(GREEDY, stack.n_vocab),
        Noise(5),
        100,
    )
    seen: list[Evidence] = []
    policy = Looking(seen)
    for _ in range(3):
        decode_round([request], stack.target, drafter, policy)
    assert len(seen) == 3
    assert request.tally.drafted == 0
    assert {e.source for e in seen} == {"mtp"}


def test_a_target_that_holds_tokens_cannot_be_shared(folder: Path, stack: Stack) -> None:
    """Sharing would clear its cells."""
    stack.target.read(0, prompt(5))
    own = Model(folder / "assistant.gguf", alone=False)
    try:
        with pytest.raises(DecodeError, match="before anything is read"):
            Assistant(own, stack.context, n_ctx=256, threads=1)
    finally:
        own.close()


# -- refusals --------------------------------------------------------------------------------------


def test_assistants_of_another_target_are_refused_by_numbers(folder: Path, tmp_path: Path) -> None:
    """llama.cpp would read past the target's keys or abort."""
    target = ModelFile(folder / "target.gguf").header

    def trouble(**changes: object) -> str:
        head = head_files.write_assistant(tmp_path / "head.gguf", **changes)  # type: ignore[arg-type]
        return heads.head_problem(ModelFile(head).header, target) or ""

    assert trouble() == ""
    assert "hidden size of 96, and target.gguf has 64" in trouble(target_width=96)
    assert "reads 1 key heads of 64 from a layer, and target.gguf caches 1 key heads of 32" in (
        trouble(key_length=64)
    )
    assert "2 key heads of 32" in trouble(heads_kv=2)
    assert "its own width is that of target.gguf, 64" in trouble(width=64)
    assert "2 layers, 1 of them for prediction" in trouble(nextn=1)
    assert "lacks blk.0.post_ffw_norm.weight" in trouble(leave_out="post_ffw_norm")
    glm = ModelFile(head_files.write_mtp(tmp_path / "glm.gguf")).header
    found = heads.head_problem(ModelFile(folder / "assistant.gguf").header, glm)
    assert "a model of gemma4, not of glm4moe" in (found or "")
    odd = ModelFile(head_files.write_gemma(tmp_path / "odd.gguf", layers=5)).header
    found = heads.head_problem(ModelFile(folder / "assistant.gguf").header, odd)
    assert "slide" in (found or "")


def test_what_ends_a_text_may_differ_but_not_what_ids_stand_for(
    folder: Path, tmp_path: Path
) -> None:
    target = ModelFile(folder / "target.gguf").header
    ends = head_files.write_assistant(tmp_path / "ends.gguf", eos=1)
    assert heads.head_problem(ModelFile(ends).header, target) is None
    foreign = head_files.write_assistant(tmp_path / "foreign.gguf", words=foreign_vocabulary(70))
    found = heads.head_problem(ModelFile(foreign).header, target) or ""
    assert "the vocabularies differ from id 70 on" in found


def test_a_refused_assistant_is_named_and_the_text_drafts(folder: Path, tmp_path: Path) -> None:
    other = head_files.write_assistant(tmp_path / "other.gguf", target_width=96)
    with pytest.raises(DraftIncompatibleError, match=r"other\.gguf .* hidden size of 96"):
        Runtime.open(options(folder, draft=str(other)))


def test_an_assistant_cannot_run_alone(folder: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"gemma4-assistant.* cannot run alone"):
        Runtime.open(Options(str(folder / "assistant.gguf")))


def test_an_assistant_needs_no_memory_for_a_cache(folder: Path) -> None:
    assert not any(sizes_of(ModelFile(folder / "assistant.gguf").header).kv_width)
