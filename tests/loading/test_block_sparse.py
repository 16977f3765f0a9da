"""Attention to chosen blocks is another model in contexts whose sequences share cells."""

from __future__ import annotations

from pathlib import Path

import head_files
import numpy as np
import pytest

from localspec import Options, Runtime
from localspec.core.errors import StrictError
from localspec.core.values import Logits
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.strict import OwnStrictContext, StrictContext

TEXT = [3 + (7 * i * i) % 250 for i in range(90)]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return head_files.write_block_sparse(tmp_path_factory.mktemp("sparse") / "sparse.gguf")


def last_row(context: Context) -> Logits:
    context.read(0, TEXT[:-1])
    (rows,) = context.forward([(0, TEXT[-1:], 1)])
    row: Logits = rows[0].copy()
    context.close()
    return row


def test_only_contexts_of_its_own_kind_compute_it(sparse: Path) -> None:
    """Where shared cells or no flash attention come to give the same rows, nothing need be refused
    any more.
    """
    model = Model(sparse)
    assert not model.branching
    plain = last_row(Context(model, n_ctx=128, threads=1))
    several = last_row(Context(model, n_ctx=128, n_seq=3, threads=1))
    own = last_row(OwnStrictContext(model, n_ctx=128, threads=1))
    assert max(np.abs(plain - several).max(), np.abs(plain - own).max()) < 0.05
    for other in (
        Context(model, n_ctx=128, branches=2, threads=1),
        StrictContext(model, n_ctx=128, threads=1),
    ):
        assert np.abs(plain - last_row(other)).max() > 0.05
    model.close()


def test_it_gets_no_draft_trees(sparse: Path) -> None:
    options = Options(str(sparse), draft="none", drafter=("suffix", "lookahead"), draft_max=4)
    with Runtime.open(options) as runtime:
        assert runtime.pair.target.leaves == 1
        told = "sparse.gguf keeps a cache that cannot branch: no draft trees"
        assert told in runtime.info.notices


def test_strict_mode_needs_our_own_kernels_for_it(sparse: Path) -> None:
    with pytest.raises(
        StrictError, match=r"sparse\.gguf: only our own kernels .* without --strict"
    ):
        Runtime.open(Options(str(sparse), draft="none", strict=True, kernels="llama"))
