"""What is linked to llama.cpp's libraries is not used with a build that names them otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.compiling import cxx
from localspec.kernels import build
from localspec.llama import mtmd_library
from localspec.llama.rpc import plugin


def test_builds_that_name_their_libraries_otherwise_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places(*names: str) -> set[str]:
        folder = tmp_path / "-".join(names)
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        monkeypatch.setattr(cxx, "library_folder", lambda: folder)
        build.key.cache_clear()
        assert cxx.linked_names() == list(names)
        return {build.key(), str(plugin._place()), str(mtmd_library.place())}

    try:
        plain = places("libggml-base.so")
        versioned = places("libggml-base.so", "libggml-base.so.0")
        assert len(plain | versioned) == 6
    finally:
        build.key.cache_clear()


def test_without_libraries_there_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "library_folder", lambda: None)
    assert cxx.linked_names() == []
