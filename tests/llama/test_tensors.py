"""Weights of a head, read without llama.cpp."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from localspec.core.errors import UnsupportedModelError
from localspec.kernels.formats import FORMATS
from localspec.llama.heads import tensors
from localspec.llama.heads.tensors import Weight


@pytest.mark.parametrize("name", FORMATS)
def test_weights_expanded_in_pieces_are_the_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "_AT_ONCE", 512)
    form = FORMATS[name]
    data = form.random(3 * 768, 0.1, np.random.default_rng(1))
    found = Weight("w", (768, 3), form.ggml_type, data).numbers()
    assert found.shape == (3, 768)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.reshape(-1), form.numbers(data).astype(np.float32))


def test_expanding_a_large_matrix_takes_little_beside_the_result() -> None:
    form = FORMATS["F16"]
    data = form.random(1 << 23, 0.1, np.random.default_rng(1))
    tracemalloc.start()
    try:
        found = Weight("w", (1 << 11, 1 << 12), form.ggml_type, data).numbers()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * found.nbytes


def test_a_type_that_is_not_read_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"w is .*, and this build lacks"):
        Weight("w", (256,), 16, np.zeros(66, np.uint8)).numbers()
