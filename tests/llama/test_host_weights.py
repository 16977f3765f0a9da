"""Where weights on the host go, as llama.cpp is asked; a GPU decides what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_tools
import pytest

from localspec.llama import model as model_module
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

    def seen(path: Path, params: Any) -> Any:
        asked.append(params.no_host)
        return load(path, params)

    monkeypatch.setattr(model_module, "load", seen)
    path = gguf_tools.write_llama(tmp_path / "m.gguf", layers=2, seed=1, context=64)
    Model(path, gpu_layers=layers, beside_device=beside_device).close()
    assert asked == [bypassed]
