"""Where weights on the host go, as llama.cpp is asked; a GPU decides what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_tools
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from memory_files import write_mla

from localspec.llama import library
from localspec.llama import model as model_module
from localspec.llama.context import Context
from localspec.llama.load_file import kept_on_host
from localspec.llama.memory_estimate import dry_run
from localspec.llama.model import Model


@pytest.mark.parametrize(
    ("layers", "beside_device", "bypassed"),
    [
        (0, False, True),
        (1, False, False),
        (99, False, False),
        (None, False, False),
        (1, True, True),
    ],
)
def test_weights_on_the_host_are_repacked_unless_a_gpu_is_to_copy_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layers: int | None,
    beside_device: bool,
    bypassed: bool,
) -> None:
    asked = []
    load = model_module.load

    def seen(path: Path, params: Any, **kernels: bool) -> Any:
        asked.append(params.no_host)
        return load(path, params, **kernels)

    monkeypatch.setattr(model_module, "load", seen)
    path = gguf_tools.write_llama(tmp_path / "m.gguf", layers=2, seed=1, context=64)
    Model(path, gpu_layers=layers, beside_device=beside_device).close()
    assert asked == [bypassed]


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.F16])
def test_matrices_of_latent_attention_are_multiplied_as_they_are_in_the_file(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    """With AMX, llama.cpp would put them where it cannot multiply them, and abort."""
    path, rows = write_mla(tmp_path / "latent.gguf", kind=kind), []
    dry_run(path, gpu_layers=0, n_ctx=64, n_batch=64, kv_type="f16")
    for extra_buffers in (False, True):
        model = Model(path, gpu_layers=0, extra_buffers=extra_buffers)
        context = Context(model, n_ctx=64, threads=1)
        rows.append(context.forward([(0, [*range(5, 45)], 40)])[0].copy())
        context.close()
        model.close()
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(
    ("processor", "layers", "devices", "kept"),
    [
        ("AMX_INT8 = 1", 0, True, "\\d+"),
        ("AMX_INT8 = 1", 999, False, "\\d+"),
        ("AMX_INT8 = 1", 1, True, "0|1"),  # the output alone
        ("AMX_INT8 = 1", 2, True, "0"),
        ("AMX_INT8 = 1", 999, True, None),
        ("AVX512 = 1", 0, False, None),
    ],
)
def test_they_are_kept_out_of_amx_in_the_layers_on_the_host(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processor: str,
    layers: int,
    devices: bool,
    kept: str | None,
) -> None:
    monkeypatch.setattr(library, "system_info", lambda: processor)
    path = write_mla(tmp_path / "latent.gguf")
    *found, end = kept_on_host(path, layers, 0, devices=devices, extra_buffers=True)
    assert end.pattern is None
    patterns = [entry.pattern.decode() for entry in found]
    assert patterns == ([] if kept is None else [rf"^blk\.(?:{kept})\.attn_[kv]_b\."])
    assert not kept_on_host(path, layers, 0, devices=devices, extra_buffers=False)[0].pattern
