"""A llama.cpp that was built beside an installation is used where it fits, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.compiling import cxx, own_build


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A noted build."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(own_build.VARIABLE, "")
    monkeypatch.delenv(own_build.VARIABLE)
    monkeypatch.setattr(own_build, "CHECKOUT", "none")
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libllama.so").touch()
    own_build.note(libraries)
    return libraries


def test_the_noted_build_is_the_one_that_is_loaded_and_proved(folder: Path) -> None:
    assert not own_build.used()
    own_build.use()
    assert cxx.library_folder() == folder
    assert own_build.used()


def test_a_folder_that_the_user_names_goes_before_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(own_build.VARIABLE, str(tmp_path))
    own_build.use()
    assert os.environ[own_build.VARIABLE] == str(tmp_path)
    assert own_build.noted() == folder
    assert not own_build.used()


def test_a_build_for_another_processor_or_version_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_build.noted() == folder
    with monkeypatch.context() as moved:
        moved.setattr(own_build, "processor", lambda: ["another"])
        assert own_build.noted() is None
    monkeypatch.setattr(own_build, "VERSION", "0.0.1")
    assert own_build.noted() is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"folder": 7, "for": []}'])
def test_a_damaged_note_is_none(folder: Path, tmp_path: Path, damage: bytes) -> None:
    assert folder
    (tmp_path / "home" / "cache" / "own-llama.json").write_bytes(damage)
    own_build.use()
    assert own_build.VARIABLE not in os.environ


def test_a_build_that_is_gone_is_not_used(folder: Path) -> None:
    (folder / "libllama.so").unlink()
    assert own_build.noted() is None


@pytest.mark.usefixtures("folder")
def test_it_can_be_forgotten_again() -> None:
    assert own_build.forget()
    assert own_build.noted() is None
    assert not own_build.forget()


def test_a_checkout_keeps_to_what_its_own_start_built(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_build.noted() == folder
    monkeypatch.setattr(own_build.sys, "prefix", str(tmp_path))
    (tmp_path / own_build.CHECKOUT).touch()
    assert own_build.noted() is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_every_library_of_llama_cpp_is_that_builds_and_is_loaded_once(tmp_path: Path) -> None:
    """Or its devices would be looked for in another's ggml, which knows none of them."""
    installed = cxx.library_folder()
    assert installed is not None
    shutil.copytree(installed, tmp_path / "lib")
    program = (
        "import json; from localspec.llama import devices; devices.devices(); "
        "lines = {line.split(maxsplit=5)[-1].strip() for line in open('/proc/self/maps')}; "
        "print(json.dumps([line for line in lines if '/libggml' in line or '/libllama' in line]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {own_build.VARIABLE: str(tmp_path / "lib")},
        capture_output=True,
        check=True,
    )
    loaded = [Path(path) for path in json.loads(done.stdout)]
    assert {path.parent for path in loaded} == {tmp_path / "lib"}
    kinds = [path.name.partition(".")[0] for path in loaded]
    assert sorted(kinds) == sorted(set(kinds))
    assert "libggml" in kinds
