"""Heads that draft: exact, in step with the target's cache after whatever happens, and refused by
name and numbers where they belong to another target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import head_files
import numpy as np
import pytest
from contexts import opened
from frequencies import FALSE_ALARM, p_value_by_looks
from head_pairs import Pair, loaded
from heads.compose import compose_mtp
from replies import ENDLESS, HELLO, WARM, exact, last
from stacks import Following, prompt

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.bench.lab import Lab
from localspec.core.errors import (
    DecodeError,
    DraftIncompatibleError,
    Interrupted,
    UnsupportedModelError,
)
from localspec.core.files.paths import DEMO_DIR
from localspec.core.logits import LogitsProcessor
from localspec.core.target import Work
from localspec.core.values import Distribution, Proposal, no_draft
from localspec.drafters.heads.eagle import HeadModel
from localspec.drafters.heads.head_drafter import HeadDrafter
from localspec.llama import experimental, state
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import StoredStates
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.models.compat import heads
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import sizes_of

KINDS = (
    *("mtp", "mtp on a hybrid", "eagle3, borrowing", "eagle3, owning", "eagle3, normed"),
    "eagle3, few words",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_leaves_the_text_alone(head_pairs: dict[str, Pair], kind: str) -> None:
    with Runtime.open(head_pairs[kind].options()) as runtime:
        for sampling in (GREEDY, WARM, Sampling(repeat_penalty=1.3)):
            drafted = exact(runtime, sampling)
            assert drafted.stats.drafted > 20
            assert set(drafted.stats.by_drafter) == {head_pairs[kind].drafter}


@pytest.mark.parametrize("kind", ["mtp", "eagle3, few words"])
def test_a_head_drafts_under_rejection_with_real_probabilities(
    head_pairs: dict[str, Pair], kind: str
) -> None:
    with Runtime.open(head_pairs[kind].options(verifier="rejection")) as runtime:
        sampling = Sampling(temperature=1.0, logit_bias=ENDLESS)
        reply = last(runtime.reply(HELLO, sampling=sampling, seed=1, max_tokens=40))
    assert len(reply.tokens) == 40
    assert 0 < reply.stats.accepted < reply.stats.drafted


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("verifier", ["match", "rejection"])
def test_a_layer_that_knows_what_comes_is_always_right(
    tmp_path: Path, temperature: float, verifier: str
) -> None:
    """A token or a state out of place by one would leave nothing of this."""
    sampling = Sampling(temperature=temperature, logit_bias=ENDLESS)
    pair = Pair("mtp", head_files.write_mtp(tmp_path / "knowing.gguf", knowing=True))
    with Runtime.open(pair.options(draft_max=4, verifier=verifier)) as runtime:
        for turn in ("one", "two"):
            said = [Message("user", turn)]
            reply = last(runtime.reply(said, sampling=sampling, seed=3, max_tokens=60))
            assert reply.stats.accepted == reply.stats.verified > 20


def test_a_file_that_carries_a_layer_uses_it_without_being_told(
    head_pairs: dict[str, Pair],
) -> None:
    target = str(head_pairs["mtp"].target)
    options = Options(model=target, draft_max=3)
    with Runtime.open(options) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
    assert "mtp" in reply.stats.by_drafter
    with Runtime.open(Options(model=target, draft="none", draft_max=3)) as none:
        reply = last(none.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
    assert "mtp" not in reply.stats.by_drafter


def test_a_head_beside_the_target_is_known_by_its_header(head_pairs: dict[str, Pair]) -> None:
    pair = head_pairs["eagle3, owning"]
    with Runtime.open(Options(str(pair.target), str(pair.head), draft_max=3)) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
        assert runtime.info.draft == str(pair.head)
    assert "eagle3" in reply.stats.by_drafter


def test_layers_in_a_file_beside_the_target_draft_as_inside_it(tmp_path: Path) -> None:
    """And they are found without being named."""
    for write in (head_files.write_mtp, head_files.write_hybrid, head_files.write_chained):
        folder = tmp_path / write.__name__
        folder.mkdir()
        whole, trunk, beside = (tmp_path / "whole.gguf", folder / "a.gguf", folder / "b.gguf")
        head_files.split(write(whole), trunk, beside)
        found = []
        for target in (whole, trunk):
            with Runtime.open(Options(str(target), drafter=("mtp",), draft_max=3)) as runtime:
                reply = last(runtime.reply(HELLO, sampling=WARM, seed=4, max_tokens=40))
                stats = reply.stats.by_drafter["mtp"]
                found.append((reply.tokens, stats.drafted, stats.accepted, runtime.info.draft))
        assert found[0][:3] == found[1][:3]
        assert [draft for *_, draft in found] == [None, str(beside)]


def test_layers_beside_a_target_are_planned_as_what_they_are(tmp_path: Path) -> None:
    whole, trunk, beside = (tmp_path / f"{name}.gguf" for name in ("whole", "trunk", "beside"))
    head_files.split(head_files.write_hybrid(whole), trunk, beside)
    alone, with_trunk = sizes_of(ModelFile(beside).header), sizes_of(ModelFile(whole).header)
    assert alone.kv_all(512, "f16") * alone.n_layer < with_trunk.kv_all(512, "f16")
    assert not alone.doubts


# -- in step with the target -----------------------------------------------------------------------


@dataclass
class Stack(Following):
    """With a head that has a cache of its own."""

    head: Head
    stored: StoredStates

    def rounds(self, tokens: list[int], n: int, seed: int = 5) -> int:
        """Some rounds after a prompt; returns the tokens accepted."""
        return self.play(tokens, n, 3, WARM, seed)


@pytest.fixture
def stack(head_pairs: dict[str, Pair]) -> Iterator[Callable[[str], Stack]]:
    with contextlib.ExitStack() as closing:

        def build(kind: str) -> Stack:
            at = closing.enter_context(loaded(head_pairs[kind], rollback=ROLLBACK))
            model = HeadModel(at.head, at.stored, at.model.n_vocab)
            drafter = HeadDrafter(model, Proposal.COUPLED, "head")
            n_vocab = at.model.n_vocab
            return Stack(at.context, at.target, drafter, n_vocab, at.head, at.stored)

        yield build


def guess(stack: Stack, tokens: list[int]) -> np.ndarray:
    """The head's logits after tokens that the target has read but for the last."""
    row = stack.drafter.logits(0, tokens)
    assert row is not None
    return row


@pytest.mark.parametrize("kind", KINDS)
def test_after_any_rounds_the_head_knows_what_a_fresh_one_would(
    stack: Callable[[str], Stack], kind: str
) -> None:
    """Rounds that accept none, some or all, a second turn with part of the prefix, then a third."""
    used, tokens = stack(kind), prompt(30)
    used.read(tokens)
    used.rounds(tokens, 25)
    second = [*tokens[:-6], *prompt(20, seed=1)]
    try:
        used.target.truncate(0, len(tokens) - 6)
    except DecodeError:  # a recurrent state
        used.target.truncate(0, 0)
    used.read(second)
    used.rounds(second, 15, seed=9)
    fresh = stack(kind)
    fresh.read(second)
    assert used.drafter.length(0) <= len(second)
    np.testing.assert_allclose(guess(used, second), guess(fresh, second), atol=0.02)


@pytest.mark.parametrize("kind", ["mtp", "eagle3, owning"])
def test_a_prompt_longer_than_the_states_that_are_kept_is_read_whole(
    stack: Callable[[str], Stack], kind: str
) -> None:
    made, tokens = stack(kind), prompt(700)
    made.read(tokens)
    made.rounds(tokens, 1)
    assert made.head.length(0) >= 700 - 2
    assert made.stored.span(0)[0] > 0


@pytest.mark.parametrize("kind", ["mtp", "eagle3, owning", "mtp on a hybrid"])
def test_where_states_are_gone_the_head_begins_later_and_goes_on(
    stack: Callable[[str], Stack], kind: str
) -> None:
    """States are gone after a reply without drafts, or in a cache that came from disk."""
    made, tokens = stack(kind), prompt(400)
    made.target.read(0, tokens[:-1])  # nobody followed
    made.rounds(tokens, 10)
    first, _ = made.stored.span(0)
    assert first > 0
    assert made.drafter.length(0) > 400
    made.stored.cut(0, 0)
    made.rounds(tokens, 1)  # nothing to draft from
    assert made.rounds(tokens, 10) >= 0


def test_an_interrupted_prompt_leaves_both_caches_in_step(
    stack: Callable[[str], Stack],
) -> None:
    made, tokens = stack("mtp"), prompt(90)
    made.target.read(0, tokens[:50])
    made.drafter.prompt_read(0, tokens, 50)
    made.context.stop.set()
    with pytest.raises(Exception, match="interrupted"):
        made.target.read(0, tokens[50:-1])
    made.context.stop.clear()
    assert made.stored.span(0)[1] == made.target.length(0) == 50
    made.read(tokens)
    fresh = stack("mtp")
    fresh.read(tokens)
    np.testing.assert_allclose(guess(made, tokens), guess(fresh, tokens), atol=0.02)


# -- trained heads ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """The demo target's own heads."""
    data, target = Path(__file__).parents[1] / "data" / "heads", DEMO_DIR / "target.gguf"
    carrying = tmp_path_factory.mktemp("trained") / "carrying.gguf"
    compose_mtp(target, data / "mtp-block.gguf", carrying)
    return {"mtp": Pair("mtp", carrying), "eagle3": Pair("eagle3", target, data / "eagle3.gguf")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "drafter"), [("mtp", "mtp"), ("eagle3", "eagle3"), ("eagle3", "tree")]
)
def test_a_trained_head_leaves_the_distribution_alone(
    trained: dict[str, Pair], kind: str, drafter: str
) -> None:
    """Up to 850 draws of two tokens under rejection against the target's own distribution of them.

    The test alarms falsely with a probability of 1e-4.
    """
    runs, full = 850, Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    chat = [Message("user", "Tell me something.")]
    options = trained[kind].options(
        draft_max=2, verifier="rejection", drafter=(drafter,), threads=1
    )
    with Runtime.open(options) as runtime:
        common = {pair: p for pair, p in joint(runtime, chat, full).items() if p * runs >= 8}
        others = {(): 1 - sum(common.values())}

        def said(seed: int) -> tuple[int, ...]:
            reply = last(runtime.reply(chat, sampling=full, seed=seed, max_tokens=3))
            return pair if (pair := tuple(reply.tokens[:2])) in common else ()

        assert len(common) > 3
        assert p_value_by_looks(said, common | others, runs) > FALSE_ALARM


def joint(
    runtime: Runtime, said: list[Message], sampling: Sampling
) -> dict[tuple[int, int], float]:
    """The probability of the first two tokens of a reply, of those that are not rare."""
    pairing = Lab(runtime).borrow()
    processor = LogitsProcessor(sampling, pairing.target_model.n_vocab)
    tokens = runtime.encode(said)

    def after(known: list[int]) -> Distribution:
        pairing.target.truncate(0, 0)
        pairing.target.read(0, known[:-1])
        (scores,) = pairing.target.score([Work(0, known[-1], no_draft("look"))])
        return processor(scores.logits[0].copy(), known)

    found, first = {}, after(tokens)
    for a, p in zip(first.ids.tolist(), first.probs.tolist(), strict=True):
        if p > 0.002:
            second = after([*tokens, a])
            for b, q in zip(second.ids.tolist(), second.probs.tolist(), strict=True):
                found[a, b] = p * q
    return found


# -- recurrent targets -----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 12])
@pytest.mark.parametrize("drafter", ["suffix", "mtp", "suffix,mtp"])
def test_a_hybrid_target_is_exact_whether_states_are_kept_or_put_back(
    head_pairs: dict[str, Pair], drafter: str, k: int
) -> None:
    options = head_pairs["mtp on a hybrid"].options(drafter=tuple(drafter.split(",")), draft_max=k)
    with Runtime.open(options) as runtime:
        for sampling in (GREEDY, WARM):
            exact(runtime, sampling, 60, 4)


def test_a_target_without_any_attention_is_drafted_for_too(tmp_path: Path) -> None:
    gguf_tools.write_mamba(tmp_path / "mamba.gguf")
    options = Options(str(tmp_path / "mamba.gguf"), drafter=("suffix",), draft_max=4)
    with Runtime.open(options) as runtime:
        assert exact(runtime, GREEDY, 60).stats.drafted


def test_a_recurrent_state_is_never_taken_back_further_than_it_was_kept(
    head_pairs: dict[str, Pair],
) -> None:
    """llama.cpp would do it and go on from another state."""
    with opened(
        Model(head_pairs["mtp on a hybrid"].target), n_ctx=256, n_batch=64, rollback=ROLLBACK
    ) as context:
        context.forward([(0, prompt(20), 0)])
        context.forward([(0, [7], 1)])
        with pytest.raises(DecodeError, match="taken back"):
            context.truncate(0, 18)
        context.forward([(0, [7, 8, 9], 1)])
        context.truncate(0, 22)
        with pytest.raises(DecodeError, match="taken back"):  # once
            context.truncate(0, 21)


def test_a_snapshot_that_stays_on_the_device_is_put_back_like_one_on_the_host(
    head_pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor's buffers stand in for a device's: llama.cpp copies them by the same code."""
    with opened(
        Model(head_pairs["mtp on a hybrid"].target), n_ctx=256, n_seq=2, rollback=ROLLBACK
    ) as context:
        rows = []
        for seq, on_device in enumerate((False, True)):
            monkeypatch.setattr(Context, "on_device", on_device)
            context.read(seq, prompt(30))
            before = state.snapshot(context, seq)
            context.forward([(seq, prompt(12, seed=1), 1)])
            state.revert(context, seq, before)
            assert context.length(seq) == 30
            rows.append(context.forward([(seq, prompt(9, seed=2), 9)])[0].copy())
        np.testing.assert_array_equal(*rows)


def test_a_state_that_was_put_back_is_not_taken_back_by_what_came_after(
    head_pairs: dict[str, Pair],
) -> None:
    """A short reply is tried again whose last draft was long and rejected."""
    with opened(
        Model(head_pairs["mtp on a hybrid"].target), n_ctx=256, rollback=ROLLBACK
    ) as context:
        context.read(0, prompt(30))
        before = state.snapshot(context, 0)
        context.forward([(0, prompt(12, seed=1), 1)])
        state.revert(context, 0, before)
        assert context.length(0) == 30
        with pytest.raises(DecodeError, match="taken back"):
            context.truncate(0, 28)


@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_stopping_does_not_leave_a_recurrent_state_halfway(
    head_pairs: dict[str, Pair], tokens: int
) -> None:
    """llama.cpp takes what a stopped pass began for a state that can be taken back."""
    model = Model(head_pairs["mtp on a hybrid"].target)
    contexts = [Context(model, n_ctx=512, threads=1, rollback=ROLLBACK) for _ in range(2)]
    try:
        stopped = contexts[0]
        stopped.read(0, prompt(30))
        stopped.stop.set()
        stopped.forward([(0, prompt(tokens, seed=1), 1)])  # short: it runs to its end
        with pytest.raises(Interrupted):
            stopped.forward([(0, prompt(200, seed=2), 0)])
        assert stopped.length(0) == 0  # long: nothing is left
        stopped.stop.clear()
        for context in contexts:
            context.read(0, prompt(30))
        stopped.stop.set()
        rows = [c.forward([(0, prompt(tokens, seed=1), 1)])[0].copy() for c in contexts]
        stopped.stop.clear()
        rows += [context.forward([(0, [9], 1)])[0].copy() for context in contexts]
        np.testing.assert_allclose(rows[0], rows[1], atol=1e-3)
        np.testing.assert_allclose(rows[2], rows[3], atol=1e-3)
    finally:
        for part in (*contexts, model):
            part.close()


# -- refusals --------------------------------------------------------------------------------------


def test_heads_of_another_target_are_refused_by_numbers(
    head_pairs: dict[str, Pair], tmp_path: Path
) -> None:
    dense = ModelFile(head_pairs["eagle3, owning"].target).header

    def trouble(head: Path, target: Header = dense) -> str:
        return heads.head_problem(ModelFile(head).header, target) or ""

    assert trouble(head_pairs["eagle3, owning"].head) == ""
    far = head_files.write_eagle(tmp_path / "far.gguf", layers=(1, 2, 9))
    assert "layers 1, 2, 9" in trouble(far)
    assert "has 4 layers" in trouble(far)
    wide = head_files.write_eagle(tmp_path / "wide.gguf", target_width=128)
    assert "hidden size of 128" in trouble(wide)
    assert "has 64" in trouble(wide)
    glm = ModelFile(head_pairs["mtp"].target).header
    assert "glm4moe" in trouble(head_pairs["eagle3, owning"].head, glm)
    two = head_files.write_eagle(tmp_path / "two.gguf", layers=(1, 2))
    assert "three are needed" in trouble(two)


def test_a_layer_that_is_only_promised_is_named_and_the_text_drafts(tmp_path: Path) -> None:
    path = head_files.write_mtp(tmp_path / "promised.gguf", block=False)
    header = ModelFile(path).header
    assert heads.states_mtp(header)
    assert "lacks blk.2.nextn.eh_proj.weight" in (heads.mtp_problem(header) or "")
    with pytest.raises(DraftIncompatibleError, match="nextn"):
        Runtime.open(Options(str(path), drafter=("mtp",)))
    with Runtime.open(Options(str(path), draft_max=3)) as runtime:
        reply = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=20))
        assert any("nextn.eh_proj" in notice for notice in runtime.info.notices)
    assert set(reply.stats.by_drafter) <= {"suffix"}


def test_what_is_asked_for_must_be_what_the_file_is(head_pairs: dict[str, Pair]) -> None:
    eagle, mtp = head_pairs["eagle3, owning"], head_pairs["mtp"]
    with pytest.raises(DraftIncompatibleError, match="EAGLE-3 head, not a model"):
        Runtime.open(
            Options(str(eagle.target), str(eagle.head), drafter=("model",), require_draft=True)
        )
    with pytest.raises(DraftIncompatibleError, match="carries no multi-token"):
        Runtime.open(Options(str(eagle.target), drafter=("mtp",)))
    with pytest.raises(DraftIncompatibleError, match="no eagle3 head"):
        Runtime.open(Options(str(mtp.target), drafter=("eagle3",)))


def test_a_head_cannot_run_alone(head_pairs: dict[str, Pair]) -> None:
    with pytest.raises(UnsupportedModelError):
        Runtime.open(Options(str(head_pairs["eagle3, owning"].head)))


def test_a_build_that_gives_no_states_is_told_from_one_that_does(
    head_pairs: dict[str, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert experimental.calls() is not None
    monkeypatch.setattr(experimental, "calls", lambda: None)
    with Runtime.open(Options(str(head_pairs["mtp"].target), draft_max=3)) as runtime:
        assert any("does not expose" in notice for notice in runtime.info.notices)
        assert last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=10)).tokens
