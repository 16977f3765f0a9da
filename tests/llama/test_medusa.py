"""Medusa's heads as ggml computes them, and the states that they read."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_tools import write_llama
from head_files import WIDTH, write_medusa

from localspec.core.target import Work
from localspec.core.values import Draft, Proposal, no_draft
from localspec.llama.context import Context
from localspec.llama.heads import ggml
from localspec.llama.heads.hidden_states import FinalStates, StoredStates
from localspec.llama.heads.medusa import GgmlMedusa, NumpyMedusa, opened, weights_of
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.compat.medusa import MOST_BLOCKS, MOST_HEADS
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import OUTPUTS

TYPES = (
    gguf.GGMLQuantizationType.F32,
    gguf.GGMLQuantizationType.F16,
    gguf.GGMLQuantizationType.BF16,
    gguf.GGMLQuantizationType.Q8_0,
)


@pytest.fixture(scope="module")
def target_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("medusa") / "target.gguf", width=WIDTH)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("blocks", "own"), [(1, ()), (2, (0, 2)), (1, (0, 1, 2))])
def test_ggml_and_numpy_agree(
    tmp_path: Path,
    target_file: Path,
    kind: gguf.GGMLQuantizationType,
    blocks: int,
    own: tuple[int, ...],
) -> None:
    file = write_medusa(tmp_path / "heads.gguf", blocks=blocks, own=own, kind=kind)
    made_of = weights_of(ModelFile(file), ModelFile(target_file))
    by_ggml, by_numpy = GgmlMedusa(made_of, on_gpu=False, threads=1), NumpyMedusa(made_of)
    assert by_ggml.count == by_numpy.count == 3
    states = np.random.default_rng(1).normal(0, 1, (4, WIDTH)).astype(np.float32)
    for n, heads in ((1, 1), (1, 3), (4, 1), (4, 2)):
        found, right = by_ggml.guess(states[:n], heads), by_numpy.guess(states[:n], heads)
        assert found.shape == right.shape == (heads, n, by_ggml.vocabulary)
        # With quantized weights ggml rounds the states too.
        near = 3e-2 if kind is gguf.GGMLQuantizationType.Q8_0 else 5e-3
        np.testing.assert_allclose(found, right, atol=near * np.abs(right).max())
    by_ggml.close()
    by_ggml.close()


def test_the_most_heads_and_blocks_that_a_file_may_have_are_computed(
    tmp_path: Path, target_file: Path
) -> None:
    file = write_medusa(tmp_path / "heads.gguf", heads=MOST_HEADS, blocks=MOST_BLOCKS)
    made_of = weights_of(ModelFile(file), ModelFile(target_file))
    by_ggml, by_numpy = GgmlMedusa(made_of, on_gpu=False, threads=1), NumpyMedusa(made_of)
    states = np.random.default_rng(1).normal(0, 1, (1, WIDTH)).astype(np.float32)
    found, right = by_ggml.guess(states, MOST_HEADS), by_numpy.guess(states, MOST_HEADS)
    np.testing.assert_allclose(found, right, atol=5e-3 * np.abs(right).max())
    by_ggml.close()


def test_without_the_calls_of_ggml_numpy_computes(
    tmp_path: Path, target_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_medusa(tmp_path / "heads.gguf")
    assert isinstance(
        opened(ModelFile(file), ModelFile(target_file), on_gpu=False, threads=1), GgmlMedusa
    )
    monkeypatch.setattr(ggml, "calls", lambda: None)
    assert isinstance(
        opened(ModelFile(file), ModelFile(target_file), on_gpu=False, threads=1), NumpyMedusa
    )


def test_the_states_are_those_that_the_output_matrix_is_applied_to(target_file: Path) -> None:
    """States through H are the logits; rows and texts are those of a context without states."""
    model = Model(target_file)
    plain, giving = (Context(model, n_ctx=256, branches=2, threads=1) for _ in range(2))
    stored = StoredStates(FinalStates(WIDTH))
    targets = LlamaTarget(plain), LlamaTarget(giving, stored)
    (matrix,) = parts_of(target_file)
    for target in targets:
        target.read(0, [3, 4, 5, 6])
    assert stored.span(0) == (0, 0)
    pending, chain = 7, chain_of([8, 9, 10])
    for at, (draft, path) in enumerate([(chain, [0, 1]), (tree(), [2, 3]), (chain, [])]):
        rows = [t.score([Work(0, pending, draft)])[0].logits.copy() for t in targets]
        np.testing.assert_array_equal(*rows)
        _first, end = stored.span(0)
        states = stored.rows(0, end - len(draft) - 1, end)
        np.testing.assert_allclose(states @ matrix.T, rows[0], atol=1e-3)
        kept = states[[0, *(1 + node for node in path)]].copy()
        for target in targets:
            target.keep(0, path)
        assert stored.span(0)[1] == targets[1].length(0)
        end = stored.span(0)[1]
        np.testing.assert_array_equal(stored.rows(0, end - len(kept), end), kept)
        pending += 3 + at
    targets[1].truncate(0, 6)
    assert stored.span(0)[1] == 6
    for context in (plain, giving):
        context.close()
    model.close()


def test_what_is_unread_beside_the_widest_draft_is_read_before_it(target_file: Path) -> None:
    """Else the pass would have rows without states, and be wide enough for another kernel."""
    model = Model(target_file)
    context = Context(model, n_ctx=256, threads=1)
    stored = StoredStates(FinalStates(WIDTH))
    target = LlamaTarget(context, stored)
    target.read(0, [3, 4, 5, 6])
    target.score([Work(0, 7, no_draft("x"))])
    target.keep(0, [])
    assert stored.span(0) == (4, 5)
    target._known[0].unread = [8, 9]
    draft = chain_of([10] * (OUTPUTS - 1))
    (scores,) = target.score([Work(0, 10, draft)])
    assert scores.logits.shape[0] == OUTPUTS
    assert max(target.widths) == OUTPUTS
    target.keep(0, [0, 1])
    assert stored.span(0) == (7, 10)
    target.score([Work(0, 7, no_draft("x"))])
    target.keep(0, [])
    assert stored.span(0) == (7, 11)
    target.audit(0)
    context.close()
    model.close()


def parts_of(target: Path) -> list[np.ndarray]:
    """The target's output matrix."""
    reader = gguf.GGUFReader(target)
    named = {tensor.name: tensor for tensor in reader.tensors}
    tensor = named.get("output.weight") or named["token_embd.weight"]
    return [np.array(tensor.data)]


def chain_of(tokens: list[int]) -> Draft:
    n = len(tokens)
    parents = np.arange(-1, n - 1, dtype=np.int32)
    return Draft(np.array(tokens, np.int32), parents, Proposal.DETERMINISTIC, None, "x")


def tree() -> Draft:
    """Two chains of two after the pending token."""
    tokens, parents = np.array([8, 9, 10, 11], np.int32), np.array([-1, 0, -1, 2], np.int32)
    return Draft(tokens, parents, Proposal.DETERMINISTIC, None, "x")
