"""A projector is opened by the name that it has, whatever the encoding of that is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Files

from localspec.core.errors import UnsupportedModelError
from localspec.llama import encoder_child


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8 there")
def test_a_projector_below_a_folder_whose_name_is_not_utf_8_is_opened(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    path = shutil.copyfile(files.target, folder / "mmproj.gguf")
    opened: list[object] = []

    def call(name: str, *arguments: object) -> object:
        if name == "init_from_file":
            opened.append(arguments[0])
            return None
        return SimpleNamespace()

    monkeypatch.setattr(encoder_child, "Mtmd", lambda _: call)
    monkeypatch.setattr(encoder_child, "_vocabulary", lambda _: None)
    monkeypatch.setattr(encoder_child, "c_api", SimpleNamespace(llama_model_n_embd_inp=lambda _: 8))
    given = SimpleNamespace(
        projector=str(path), target="m", library="l", kernels=None, gpu=False, threads=1
    )
    with pytest.raises(UnsupportedModelError):
        encoder_child.Encoder(given)  # type: ignore[arg-type]
    assert opened == [os.fsencode(path)]
