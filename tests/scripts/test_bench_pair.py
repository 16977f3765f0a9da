"""A grown model computes the same function, at a multiple of the cost."""

from __future__ import annotations

from pathlib import Path

import gguf_tools
import numpy as np
import pytest
from benches import make_pair
from contexts import logits

from localspec.core.errors import UsageError


@pytest.mark.parametrize("megabytes", [4, 20])
def test_the_grown_model_has_the_size_asked_for_and_equal_logits(
    tmp_path: Path, megabytes: int
) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf", seed=4)
    large = make_pair.make(small, tmp_path / "large.gguf", megabytes / 1000)
    assert large.stat().st_size == pytest.approx(megabytes * 1e6, rel=0.15)
    text = "the same text for both"
    assert np.abs(logits(small, text) - logits(large, text)).max() < 1e-3
    assert not list(tmp_path.glob("*.partial"))


def test_growing_is_deterministic(tmp_path: Path) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf", seed=4)
    a, b = (make_pair.make(small, tmp_path / f"{n}.gguf", 0.005).read_bytes() for n in "ab")
    assert a == b


def test_a_size_below_the_small_models_is_refused(tmp_path: Path) -> None:
    small = gguf_tools.write_llama(tmp_path / "small.gguf")
    with pytest.raises(UsageError, match="larger than"):
        make_pair.make(small, tmp_path / "x.gguf", 1e-6)
