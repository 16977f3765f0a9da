"""NaN in the cache stays with the rows that see its cell: other sequences, branches and cut texts
have none.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import gguf
import gguf_tools
import numpy as np
import pytest

from localspec.core.values import Draft, Proposal
from localspec.llama import own_kernels
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.tree_layout import tree_of

POISON = 40
TOKENS = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in which one token's embedding is NaN, and so are its keys and values."""
    if not own_kernels.unit():
        pytest.skip("llama.cpp's attention adds no promise about NaN")
    path = gguf_tools.write_llama(tmp_path_factory.mktemp("nan") / "model.gguf", seed=5)
    embedding = next(t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight")
    numbers = np.memmap(path, np.float32, "r+", embedding.data_offset, tuple(embedding.data.shape))
    numbers[POISON] = np.nan
    numbers.flush()
    return path


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_nan_enters_no_other_sequence(poisoned: Path, kv_type: str) -> None:
    with closing(Model(poisoned, own_kernels=True)) as model:
        context = Context(model, n_ctx=256, threads=1, n_seq=3, kv_type=kv_type)
        context.forward([(0, TOKENS, 1), (2, [POISON], 1)])
        wanted = context.forward([(0, [11], 1)])[0].copy()
        context.truncate(0, len(TOKENS))
        rows = context.forward([(0, [11], 1), (1, [POISON, 12], 2)])
        np.testing.assert_array_equal(rows[0], wanted)
        assert np.isfinite(np.delete(wanted, POISON, axis=1)).all()  # its own logit is NaN
        assert np.isnan(rows[1]).all()
        context.close()


@pytest.mark.parametrize("branches", [0, 3])  # with branches, all cells are in one stream
def test_nan_that_was_cut_leaves_nothing(poisoned: Path, branches: int) -> None:
    with closing(Model(poisoned, own_kernels=True)) as model:
        context = Context(model, n_ctx=256, threads=1, branches=branches)
        context.forward([(0, TOKENS, 1)])
        wanted = context.forward([(0, [11], 1)])[0].copy()
        context.truncate(0, len(TOKENS))
        assert np.isnan(context.forward([(0, [POISON, 10, POISON], 1)])[0]).all()
        context.truncate(0, len(TOKENS))
        np.testing.assert_array_equal(context.forward([(0, [11], 1)])[0], wanted)
        context.close()


def test_nan_in_a_branch_of_a_tree_stays_there(poisoned: Path) -> None:
    tokens, parents = np.array([POISON, 10, 11], np.int32), np.array([-1, -1, 1], np.int32)
    tree = tree_of(Draft(tokens, parents, Proposal.DETERMINISTIC, None, "test"))
    with closing(Model(poisoned, own_kernels=True)) as model:
        context = Context(model, n_ctx=256, threads=1, branches=3)
        context.forward([(0, TOKENS, 1)])
        rows = context.forward_tree([9], tree).copy()
        context.truncate(0, len(TOKENS))
        wanted = context.forward([(0, [9, 10, 11], 3)])[0]
        assert np.isnan(rows[1]).all()
        np.testing.assert_array_equal(rows[[0, 2, 3]], wanted)
        context.close()
