"""DFlash heads: blocks of tokens from one pass, exact, and in step with the target's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import head_files
import numpy as np
import pytest
from replies import HELLO, WARM, exact, last
from stacks import Following, prompt

from localspec import GREEDY, Options, Runtime, Sampling
from localspec.core.errors import (
    DraftIncompatibleError,
    Interrupted,
    UnreadyError,
    UnsupportedModelError,
)
from localspec.core.values import Proposal
from localspec.drafters.heads.dflash import BlockModel
from localspec.drafters.heads.head_drafter import ForwardOnlyDrafter
from localspec.llama.context import Context
from localspec.llama.heads.dflash import Blocks
from localspec.llama.heads.hidden_states import LayerInputs, StoredStates
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.llama.timing import TimedBlocks
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile

BLOCK = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense target and heads for it, of random weights."""
    made = tmp_path_factory.mktemp("blocks")
    gguf_tools.write_llama(made / "target.gguf", layers=4, seed=3, context=1024)
    head_files.write_dflash(made / "borrowing.gguf", block=BLOCK)
    head_files.write_dflash(made / "owning.gguf", block=BLOCK, own=True)
    head_files.write_dflash(made / "sections.gguf", block=BLOCK, sections=True)
    return made


def options(folder: Path, head: str = "borrowing", **changes: object) -> Options:
    settings = {"draft": str(folder / f"{head}.gguf"), "drafter": ("dflash",), "draft_max": 8}
    return Options(str(folder / "target.gguf"), **settings | changes)


@pytest.mark.parametrize("verifier", ["match", "rejection"])
@pytest.mark.parametrize("head", ["borrowing", "owning"])
def test_blocks_leave_greedy_text_alone(folder: Path, head: str, verifier: str) -> None:
    with Runtime.open(options(folder, head, verifier=verifier)) as runtime:
        drafted = exact(runtime, GREEDY)
    assert drafted.stats.drafted > 20
    assert len(drafted.stats.per_position) <= BLOCK - 1
    assert set(drafted.stats.by_drafter) == {"dflash"}


@pytest.mark.parametrize("sampling", [WARM, Sampling(repeat_penalty=1.3)])
def test_blocks_leave_sampled_text_alone(folder: Path, sampling: Sampling) -> None:
    with Runtime.open(options(folder)) as runtime:
        assert exact(runtime, sampling).stats.drafted > 20


def test_a_head_beside_the_target_is_used_without_being_told(folder: Path) -> None:
    with Runtime.open(options(folder, drafter=None)) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=30))
    assert "dflash" in reply.stats.by_drafter


# -- in step with the target -----------------------------------------------------------------------


@dataclass
class Stack(Following):
    """With a head that drafts blocks."""

    stored: StoredStates
    head: Blocks
    model: BlockModel

    def rounds(self, tokens: list[int], n: int, seed: int = 5) -> int:
        """Some rounds after a prompt; returns the tokens accepted."""
        accepted = self.play(tokens, n, 5, Sampling(temperature=4.0), seed)
        self.head.audit()
        return accepted

    def block(self, tokens: list[int]) -> np.ndarray:
        """Logits after all but what the target has read, and after four more tokens."""
        held = self.drafter.length(0)
        rows = []
        for new in (tokens[held:], [5], [6], [7], [8]):
            ((row,),) = self.model.extend([(0, new, 1)])
            rows.append(row.copy())
        self.model.truncate(0, held)
        return np.stack(rows)


@pytest.fixture
def stack(folder: Path) -> Iterator[Callable[..., Stack]]:
    parts: list[Context | Model] = []

    def build(n_ctx: int = 512, file: str = "borrowing") -> Stack:
        model = Model(folder / "target.gguf")
        context = Context(model, n_ctx=n_ctx, n_batch=64, threads=1)
        own = Model(folder / f"{file}.gguf", alone=False)
        head = Blocks(own, context, n_ctx=n_ctx, n_batch=64, threads=1)
        stored = StoredStates(LayerInputs((1, 3), head_files.WIDTH), window=64)
        parts.extend([head, context, own, model])
        blocks = BlockModel(head, stored, model.n_vocab)
        drafter = ForwardOnlyDrafter(blocks, Proposal.COUPLED, "dflash", head.depth)
        target = LlamaTarget(context, stored)
        return Stack(context, target, drafter, model.n_vocab, stored, head, blocks)

    yield build
    for part in parts:
        part.close()


@pytest.mark.parametrize("file", ["borrowing", "sections"])
def test_after_any_rounds_a_block_is_that_of_a_fresh_head(
    stack: Callable[..., Stack], file: str
) -> None:
    """Rounds that accept none, some or all, a second turn with part of the prefix, then more."""
    used, tokens = stack(file=file), prompt(30)
    used.read(tokens)
    assert used.rounds(tokens, 25)
    second = [*tokens[:-6], *prompt(20, seed=1)]
    used.target.truncate(0, len(tokens) - 6)
    used.read(second)
    used.rounds(second, 10, seed=9)
    fresh = stack(file=file)
    fresh.read(second)
    row = used.drafter.logits(0, second)
    assert row is not None
    np.testing.assert_allclose(row, fresh.block(second)[0], atol=0.02)


def test_several_dimensions_of_a_position_are_one_for_text(stack: Callable[..., Stack]) -> None:
    """The same weights with and without: what is further back counts as such in both."""
    blocks = []
    for file in ("borrowing", "sections"):
        made, tokens = stack(file=file), prompt(40)
        made.read(tokens)
        blocks.append(made.block(tokens))
    np.testing.assert_allclose(blocks[1], blocks[0], atol=0.02)


def test_a_block_depends_on_the_text_before_and_on_its_first_token_alone(
    stack: Callable[..., Stack],
) -> None:
    made, tokens = stack(), prompt(20)
    made.read(tokens)
    block = made.block(tokens)
    assert len(block) == BLOCK - 1
    assert np.abs(np.diff(block, axis=0)).max() > 0.01  # places differ
    again = stack()
    again.read(tokens)
    (rows,) = again.model.extend([(0, [tokens[-1], 9, 9, 9, 9], 5)])
    np.testing.assert_allclose(rows, block, atol=0.02)
    other = stack()
    other.read([*prompt(19, seed=4), tokens[-1]])
    assert np.abs(other.block([*prompt(19, seed=4), tokens[-1]]) - block).max() > 0.1


def test_there_is_no_guess_beyond_the_block(stack: Callable[..., Stack]) -> None:
    made, tokens = stack(), prompt(20)
    made.read(tokens)
    with pytest.raises(UnreadyError, match="ends before"):
        made.model.extend([(0, [tokens[-1], *prompt(5)], 1)])
    made.model.truncate(0, 18)
    with pytest.raises(UnreadyError, match="not at hand"):
        made.model.extend([(0, tokens[18:], 2)])  # one of them the target has read
    made.model.extend([(0, [tokens[18]], 0)])
    assert made.block(tokens).shape == (5, made.n_vocab)


def test_where_states_are_gone_the_head_begins_later_and_goes_on(
    stack: Callable[..., Stack],
) -> None:
    """States are gone after a reply without drafts, or in a cache that came from disk."""
    made, tokens = stack(), prompt(300)
    made.target.read(0, tokens[:-1])  # nobody followed
    made.rounds(tokens, 5)
    assert made.stored.span(0)[0] > 0
    assert made.head.length(0) >= 299
    made.stored.cut(0, 0)
    made.rounds(tokens, 1)  # nothing to draft from
    made.rounds(tokens, 5)


def test_an_interrupted_block_can_be_made_again(stack: Callable[..., Stack]) -> None:
    made, tokens = stack(), prompt(90)
    made.target.read(0, tokens[:-1])
    made.head.stop.set()
    with pytest.raises(Interrupted):
        made.model.extend([(0, tokens, 1)])
    assert made.head.length(0) == 0, "states of tokens that were taken back"
    made.head.stop.clear()
    found, fresh = made.block(tokens), stack()
    fresh.target.read(0, tokens[:-1])
    np.testing.assert_allclose(found, fresh.block(tokens), atol=0.02)


def test_at_the_end_of_the_context_blocks_are_shorter(stack: Callable[..., Stack]) -> None:
    made = stack(256)
    tokens = prompt(254)
    made.read(tokens)
    assert made.head.fill(0, 253, 7).shape[0] == 2
    assert made.head.length(0) == 253
    assert TimedBlocks(made.head).seconds() > 0


# -- refusals --------------------------------------------------------------------------------------


def test_heads_that_cannot_draft_are_refused_by_name_and_numbers(
    folder: Path, tmp_path: Path
) -> None:
    target = ModelFile(folder / "target.gguf").header

    def trouble(**changes: object) -> str:
        head = head_files.write_dflash(tmp_path / "head.gguf", **changes)  # type: ignore[arg-type]
        return heads.head_problem(ModelFile(head).header, target) or ""

    assert trouble() == ""
    assert "the layers 1, 7, and target.gguf has 4 layers" in trouble(reads=(1, 7))
    assert "hidden size of 96, and target.gguf has 64" in trouble(width=96)
    assert "blocks of 1 tokens" in trouble(block=1)
    assert "blocks of 65 tokens" in trouble(block=65)
    assert "its mask is token None" in trouble(mask=None)
    assert "a DSpark head" in trouble(also="markov_w1.weight")
    assert "a DFlash 2 head" in trouble(also="selector_hidden.weight")
    assert "lacks blk.1.ffn_norm.weight" in trouble(leave_out="blk.1.ffn_norm.weight")
    glm = ModelFile(head_files.write_mtp(tmp_path / "glm.gguf")).header
    found = heads.head_problem(ModelFile(folder / "owning.gguf").header, glm) or ""
    assert "does not publish the inputs of the layers of glm.gguf (glm4moe)" in found
    other = head_files.write_dflash(tmp_path / "other.gguf", reads=(1, 7))
    with pytest.raises(DraftIncompatibleError, match=r"other\.gguf .* 4 layers"):
        Runtime.open(options(folder, draft=str(other)))


def test_a_head_of_blocks_cannot_run_alone(folder: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"dflash.* cannot run alone"):
        Runtime.open(Options(str(folder / "owning.gguf")))
