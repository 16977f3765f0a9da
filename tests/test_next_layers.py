"""Layers for multi-token prediction: the states that they guess, and several layers in a chain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import head_files
import numpy as np
import pytest

from localspec.llama.context import OUTPUTS, Context
from localspec.llama.heads import NextToken
from localspec.llama.model import Model

Write = Callable[[Path], Path]


@pytest.mark.parametrize("write", [head_files.write_mtp, head_files.write_hybrid])
@pytest.mark.parametrize("n", [4, OUTPUTS + 20])
def test_guessed_states_are_those_of_the_rows_asked_for(
    tmp_path: Path, write: Write, n: int
) -> None:
    """Of a pass over several pairs, and of a pass for each."""
    model = Model(write(tmp_path / "target.gguf"), next_layers=True)
    target = Context(model, n_ctx=256, n_batch=128, threads=1)
    head = NextToken(model, target, n_ctx=256, n_batch=128, threads=1)
    random = np.random.default_rng(0)
    tokens = random.integers(3, 250, n).tolist()
    states = random.normal(size=(n, head.width)).astype(np.float32)
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
