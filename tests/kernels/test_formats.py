"""The formats as numpy reads them are llama.cpp's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from localspec.kernels.formats import FORMATS, Format
from localspec.llama.library import libggml
from localspec.models.gguf.ggml_types import BLOCKS

QUANTIZED = [f for f in FORMATS.values() if f.rounds]


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_blocks_have_the_sizes_of_ggml(form: Format) -> None:
    assert BLOCKS[form.ggml_type] == (form.name, form.block, form.n_bytes)


@pytest.mark.parametrize("form", QUANTIZED, ids=[f.name for f in QUANTIZED])
def test_numbers_are_those_of_llama_cpp(form: Format) -> None:
    data = form.random(64 * form.block, 0.05, np.random.default_rng(7))
    assert data.nbytes == 64 * form.n_bytes
    found = form.numbers(data)
    theirs = np.empty(64 * form.block, np.float32)
    function = libggml[f"dequantize_row_{form.name.lower().replace('_k', '_K')}"]
    function(
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_void_p(theirs.ctypes.data),
        ctypes.c_int64(theirs.size),
    )
    np.testing.assert_allclose(found, theirs, rtol=1e-6, atol=1e-7 * np.abs(theirs).max())


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_random_blocks_have_the_size_that_was_asked_for(form: Format) -> None:
    numbers = form.numbers(form.random(256 * 200, 0.05, np.random.default_rng(3)))
    assert np.isfinite(numbers).all()
    assert 0.02 < numbers.std() < 0.1
    assert abs(numbers.mean()) < 0.02
