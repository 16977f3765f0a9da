"""Routed experts of some layers stay on the host; the model computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from moe_files import ARCHITECTURES, write_moe

from localspec.core.errors import OutOfMemoryError
from localspec.llama import library, load_file
from localspec.llama.context import Context
from localspec.llama.load_file import devices_for, kept_on_host
from localspec.llama.model import Model
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import sizes_of


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_pattern_covers_the_experts_of_every_architecture(
    tmp_path: Path, architecture: str
) -> None:
    """Those that the sizes count; llama.cpp names each tensor that it overrides."""
    path = write_moe(tmp_path / "mixture.gguf", architecture)
    sizes = sizes_of(ModelFile(path).header)
    assert all(
        0.5 * layer < experts for layer, experts in zip(sizes.layers, sizes.experts, strict=True)
    )
    with library.listening() as lines:
        model = Model(path, gpu_layers=99, host_experts=1)
        assert model.on_host
    model.close()
    overridden = {line.split()[1] for line in lines if "buffer type overridden" in line}
    assert overridden == {f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up", "down")} | {
        name for name in overridden if name.endswith(".bias") and name.startswith("blk.0.ffn_")
    }


def test_a_model_with_experts_on_the_host_computes_the_same(tmp_path: Path) -> None:
    path = write_moe(tmp_path / "mixture.gguf", "qwen3moe")
    rows = []
    for layers in (0, 2):
        model = Model(path, gpu_layers=99, host_experts=layers, extra_buffers=False)
        context = Context(model, n_ctx=256, threads=1)
        rows.append(context.forward([(0, [5, 6, 7, 8], 4)])[0].copy())
        context.close()
        model.close()
    np.testing.assert_array_equal(*rows)


def test_overrides_end_with_an_entry_without_a_pattern(tmp_path: Path) -> None:
    for experts in (0, 1):
        *some, last = kept_on_host(tmp_path, 99, experts, devices=False, extra_buffers=False)
        assert len(some) == experts
        assert last.pattern is None
    (first,) = some
    assert first.pattern.startswith(rb"^blk\.0\.ffn_")


def test_a_model_without_layers_on_a_card_is_loaded_for_no_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_file, "full_cards", lambda: {"CUDA0"})
    monkeypatch.setattr(load_file, "local_handles", lambda without: [])
    assert [*devices_for(None, offloads=False)] == [None]
    assert [*devices_for(None, offloads=False, alone=False)] == [None]
    with pytest.raises(OutOfMemoryError, match="the GPU has no memory left"):
        devices_for(None, offloads=True)
    monkeypatch.setattr(load_file, "local_handles", lambda without: [7])
    assert [*devices_for(None, offloads=True)] == [7, None], "the other card"
    monkeypatch.setattr(load_file, "full_cards", set)
    assert devices_for(None, offloads=True) is None
    assert [*devices_for(None, offloads=False)] == [None]
    assert devices_for(None, offloads=False, alone=False) is None, "its target's may be on a card"
