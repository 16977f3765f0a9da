"""Layers for multi-token prediction: the states that they guess, and several layers in a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import head_files
import numpy as np
import pytest
from replies import ENDLESS, WARM, exact, last
from stacks import Following, prompt

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.core.errors import (
    DecodeError,
    DraftIncompatibleError,
    Interrupted,
    ModelFileError,
    UnreadyError,
)
from localspec.core.values import Proposal
from localspec.drafters.heads.eagle import HeadModel
from localspec.drafters.heads.head_drafter import HeadDrafter
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import NextStates, StoredStates
from localspec.llama.heads.mtp import MtpLayer, MtpLayers
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.compat import heads
from localspec.models.gguf.header import Header, TensorInfo
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import OUTPUTS

Write = Callable[[Path], Path]
CHAINED = ("hy_v3", "mimo2", "step35")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of each architecture, with three layers for prediction."""
    made = tmp_path_factory.mktemp("chains")
    for architecture in CHAINED:
        head_files.write_chained(made / f"{architecture}.gguf", architecture)
    return made


@pytest.mark.parametrize("write", [head_files.write_mtp, head_files.write_hybrid])
@pytest.mark.parametrize("n", [4, OUTPUTS + 20])
def test_guessed_states_are_those_of_the_rows_asked_for(
    tmp_path: Path, write: Write, n: int
) -> None:
    """States of a pass over several pairs, and of a pass for each."""
    model = Model(write(tmp_path / "target.gguf"), next_layers=True)
    target = Context(model, n_ctx=256, n_batch=128, threads=1)
    head = MtpLayer(model, target, n_ctx=256, n_batch=128, threads=1)
    tokens, states = prompt(n), some_states(n)
    try:
        rows, own = (found.copy() for found in head.extend(0, 0, tokens, states, 2))
        assert head.length(0) == n
        head.truncate(0, 0)
        head.extend(0, 0, tokens[:-2], states[:-2], 0)
        for i in (-2, -1):
            at = n + i
            row, state = head.extend(0, at, tokens[at : at + 1], states[at : at + 1], 1)
            np.testing.assert_allclose(rows[i], row[0], atol=1e-2)
            np.testing.assert_allclose(own[i], state[0], atol=1e-2)
    finally:
        for part in (head, target, model):
            part.close()


def some_states(n: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(size=(n, head_files.WIDTH)).astype(np.float32)


# -- chains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", CHAINED)
def test_a_chain_of_layers_leaves_the_text_alone(folder: Path, architecture: str) -> None:
    options = Options(str(folder / f"{architecture}.gguf"), drafter=("mtp",), draft_max=8)
    with Runtime.open(options) as runtime:
        for sampling in (GREEDY, WARM):
            drafted = exact(runtime, sampling, 40)
            assert drafted.stats.drafted > 20
            assert len(drafted.stats.per_position) <= 3  # no more than there are layers


@pytest.mark.parametrize(
    ("architecture", "knowing"),
    [
        *(("hy_v3", knowing) for knowing in [(), (0,), (0, 1), (0, 1, 2), (1, 2)]),
        *((architecture, (0, 1)) for architecture in CHAINED[1:]),
    ],
)
def test_each_layer_drafts_the_token_at_its_place(
    tmp_path: Path, architecture: str, knowing: tuple[int, ...]
) -> None:
    """Only what the layers know that come one after the other from the first on is right."""
    path = head_files.write_chained(tmp_path / "target.gguf", architecture, knowing=knowing)
    options = Options(str(path), drafter=("mtp",), draft_max=3)
    sampling = Sampling(temperature=0.0, logit_bias=ENDLESS)
    with Runtime.open(options) as runtime:
        for turn in ("one", "two"):
            said = [Message("user", turn)]
            reply = last(runtime.reply(said, sampling=sampling, seed=3, max_tokens=40))
    right = next(i for i in range(4) if i not in knowing)
    found = reply.stats.per_position
    assert all(share == 1 for share in found[:right])
    assert all(share < 0.2 for share in found[right:])


@dataclass
class Stack(Following):
    """With a chain of layers."""

    head: MtpLayers
    model: HeadModel

    def rounds(self, tokens: list[int], n: int, seed: int = 5) -> int:
        """Some rounds after a prompt; returns the tokens accepted."""
        return self.play(tokens, n, 3, Sampling(temperature=4.0), seed)


@pytest.fixture
def stack(folder: Path) -> Iterator[Callable[[str], Stack]]:
    parts: list[Context | Model] = []

    def build(architecture: str) -> Stack:
        model = Model(folder / f"{architecture}.gguf", next_layers=True)
        context = Context(model, n_ctx=512, n_batch=64, threads=1)
        head = MtpLayers(model, context, n_ctx=512, n_batch=64, threads=1)
        stored = StoredStates(NextStates(head_files.WIDTH))
        parts.extend([head, context, model])
        layers = HeadModel(head, stored, model.n_vocab)
        drafter = HeadDrafter(layers, Proposal.COUPLED, "mtp", head.depth)
        target = LlamaTarget(context, stored)
        return Stack(context, target, drafter, model.n_vocab, head, layers)

    yield build
    for part in parts:
        part.close()


@pytest.mark.parametrize("architecture", CHAINED)
def test_a_layer_has_read_all_pairs_before_its_token(
    stack: Callable[[str], Stack], architecture: str
) -> None:
    """Those of the target's states, and the guessed ones: as if there were no other layer."""
    tokens, states = prompt(30), some_states(30)
    guessed, own = prompt(2, seed=1), some_states(2, seed=1)
    head = stack(architecture).head
    head.extend(0, 0, tokens[:20], states[:20], 0)
    head.extend(0, 20, tokens[20:], states[20:], 1)
    alone = stack(architecture).head
    for layer in (1, 2):
        i = layer - 1
        row = head.guess(0, 30 + i, guessed[i], own[i])[0].copy()
        alone.truncate(0, 0)
        alone._calls.set_nextn_offset(alone.handle, layer)
        everything = [*tokens, *guessed[:layer]], np.concatenate([states, own[:layer]])
        expected, _ = Head.extend(alone, 0, 0, *everything, 1)
        np.testing.assert_allclose(row, expected, atol=0.01)


@pytest.mark.parametrize("architecture", CHAINED)
def test_after_any_rounds_the_layers_know_what_fresh_ones_would(
    stack: Callable[[str], Stack], architecture: str
) -> None:
    """Rounds that accept none, some or all, a second turn with part of the prefix, then more."""
    used, tokens = stack(architecture), prompt(30)
    used.read(tokens)
    assert used.rounds(tokens, 25)
    second = [*tokens[:-6], *prompt(20, seed=1)]
    used.target.truncate(0, len(tokens) - 6)
    used.read(second)
    used.rounds(second, 15, seed=9)
    fresh = stack(architecture)
    fresh.read(second)
    for guess in (None, 7, 8):  # by each of the layers
        new = second if guess is None else [guess]
        found = []
        for made in (used, fresh):
            if guess is None:
                row = made.drafter.logits(0, second)
                assert row is not None
            else:
                ((row,),) = made.model.extend([(0, new, 1)])
            found.append(row.copy())
        np.testing.assert_allclose(found[0], found[1], atol=0.03)


def test_there_is_no_guess_beyond_the_last_layer(stack: Callable[[str], Stack]) -> None:
    made, tokens = stack("hy_v3"), prompt(20)
    made.read(tokens)
    made.model.extend([(0, tokens[-1:], 1)])
    made.model.extend([(0, [5], 1)])
    made.model.extend([(0, [6], 1)])
    with pytest.raises(UnreadyError, match="no layer"):
        made.model.extend([(0, [7], 1)])
    with pytest.raises(DecodeError, match="layer 3 of 3"):
        made.head.guess(0, made.head.length(0), 7, some_states(1)[0])
    made.model.truncate(0, 20)
    made.model.extend([(0, [9], 1)])


def test_interrupted_guesses_can_be_made_again(stack: Callable[[str], Stack]) -> None:
    made, tokens = stack("hy_v3"), prompt(20)
    made.read(tokens)
    made.model.extend([(0, tokens[-1:], 1)])
    made.model.extend([(0, [5], 1)])
    expected = made.model.extend([(0, [6], 1)])[0].copy()
    made.model.truncate(0, 21)
    made.head.stop.set()
    with pytest.raises(Interrupted):
        made.model.extend([(0, [6], 1)])
    made.head.stop.clear()
    np.testing.assert_allclose(made.model.extend([(0, [6], 1)])[0], expected, atol=0.01)


# -- refusals --------------------------------------------------------------------------------------


def test_chains_that_cannot_run_are_named_before_anything_is_loaded(
    folder: Path, tmp_path: Path
) -> None:
    def trouble(path: Path) -> str:
        return heads.mtp_problem(ModelFile(path).header) or ""

    assert [trouble(folder / f"{name}.gguf") for name in CHAINED] == [""] * 3
    two = head_files.write_hybrid(tmp_path / "two.gguf", next_layers=2)
    assert "has 2 MTP layers, and this llama.cpp runs a single one of qwen35" in trouble(two)
    with pytest.raises(DraftIncompatibleError, match="single one"):
        Runtime.open(Options(str(two), drafter=("mtp",)))
    lacking = head_files.write_chained(
        tmp_path / "lacking.gguf", leave_out="blk.3.nextn.hnorm.weight"
    )
    assert "states 3 MTP layers, and lacks blk.3.nextn.hnorm.weight" in trouble(lacking)
    with pytest.raises(ModelFileError, match=r"blk\.3\.nextn\.hnorm"):  # llama.cpp wants all of it
        Runtime.open(Options(str(lacking)))


def test_graphs_that_know_only_one_kind_of_layer_get_no_other() -> None:
    """llama.cpp would abort while it builds them."""

    def trouble(arch: str, *parts: str, **facts: float) -> str:
        metadata = {f"{arch}.{key.replace('__', '.')}": n for key, n in facts.items()}
        metadata |= {f"{arch}.block_count": 3, f"{arch}.nextn_predict_layers": 1}
        parts = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_norm", *parts)
        tensors = tuple(TensorInfo(f"blk.2.{part}.weight", (8, 8), 0, 256, 0) for part in parts)
        header = Header("x", 3, {"general.architecture": arch, **metadata}, tensors, 0, 0)
        return heads.mtp_problem(header) or ""

    mla = {"attention__key_length_mla": 48, "attention__value_length_mla": 32}
    dense = ("ffn_gate", "ffn_up", "ffn_down")
    for arch in ("glm4moe", "deepseek2", "deepseek32", "glm-dsa"):
        assert "lacks blk.2.ffn_gate_inp.weight" in trouble(arch, *dense, **mla)
        assert not trouble(arch, "ffn_gate_inp", "attn_q_a", **mla)
    whole = ("ffn_gate_inp", "attn_q_a")
    assert "attn_q_a.weight" in trouble("deepseek2", "ffn_gate_inp", **mla)
    assert "states no attention.key_length_mla" in trouble("deepseek2", *whole)
    scaled = mla | {"attention__temperature_scale": 0.1}
    assert "scales attention" in trouble("deepseek2", *whole, **scaled)
    assert "this llama.cpp cannot run the MTP layer" in trouble("glm5-next", *whole, **mla)


def test_states_of_several_streams_are_read_whole() -> None:
    """Rows of another width than llama.cpp expects would be read beyond their end."""

    def header(**metadata: int) -> Header:
        facts = {f"deepseek4.{key.replace('__', '.')}": n for key, n in metadata.items()}
        return Header("x", 3, {"general.architecture": "deepseek4", **facts}, (), 0, 0)

    assert heads.state_width(header(embedding_length=64)) == 64
    assert heads.state_width(header(embedding_length=64, hyper_connection__count=4)) == 256
    assert heads.state_width(header(embedding_length=64, embedding_length_out=96)) == 96
