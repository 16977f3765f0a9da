"""A llama.cpp for this machine beside an installation: what is put where. No build is made here."""

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import llama_backend
import llama_choice
import llama_here
import llama_wheel
import pytest
from bootstrap_steps import Failure
from llama_backend import Machine
from llama_check import load_failure

from localspec.compiling import own_build

PROOF = {"failed": "", "failed_plain": ""}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache whose builds are a wheel of two libraries."""

    def obtain(_source, _backend, rung, folder, *_):
        llama_wheel.make_folder(folder)
        wheel = folder / "llama_cpp_python-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as bundle:
            bundle.writestr("llama_cpp/lib/libllama.so", rung.name)
            bundle.writestr("llama_cpp/lib/libggml.so", "ggml")
            bundle.writestr("llama_cpp/lib/cmake/x.cmake", "not a library")
            bundle.writestr("llama_cpp/__init__.py", "Python")
        return wheel

    machine = Machine("Linux", "x86_64", "{}", nvcc=None, cuda_version="", gpus="")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(llama_backend, "this_machine", lambda: machine)
    monkeypatch.setattr(llama_choice, "backend_for", lambda *_: "cpu")
    monkeypatch.setattr(llama_wheel, "usual_cache", lambda *_: tmp_path / "none")
    monkeypatch.setattr(llama_wheel, "obtain_wheel", obtain)
    monkeypatch.setattr(llama_here, "load_failure", lambda *_: "")
    monkeypatch.setattr(llama_here, "prove", lambda *_: PROOF)
    return tmp_path / "cache" / "llama-cpp-python"


def test_the_libraries_of_the_wheel_and_nothing_else_lie_in_the_cache_and_are_the_users(
    cache, capsys
):
    assert llama_here.main() == 0
    said = capsys.readouterr()
    folder = llama_here.Path(json.loads(said.out))
    assert folder.is_relative_to(cache)
    assert sorted(path.name for path in folder.iterdir()) == ["libggml.so", "libllama.so"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "built natively for CPU" in said.err


def test_a_build_that_is_not_sound_is_followed_by_a_safer_one_as_in_a_checkout(cache, monkeypatch):
    def prove(*where):
        built = (where[-1] / "libllama.so").read_text()
        return {"failed": "SIGILL", "failed_plain": "SIGILL"} if built == "natively" else PROOF

    monkeypatch.setattr(llama_here, "prove", prove)
    folder = llama_here.build()
    assert (folder / "libllama.so").read_text() == "for any processor of this kind"


def test_a_failure_is_one_sentence_and_its_status(cache, monkeypatch, capsys):
    def fails(*_):
        raise Failure("install a compiler", 4)

    monkeypatch.setattr(llama_wheel, "obtain_wheel", fails)
    assert llama_here.main() == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "localspec: install a compiler\n"


def test_a_build_that_users_own_packages_load_is_not_said_to_fail(tmp_path, monkeypatch):
    """With -I, the finished wheel of an installation by `pip install --user` would be deleted."""
    python, base = Path(sys._base_executable), {"PYTHONUSERBASE": str(tmp_path)}
    asked = [python, "-c", "import site; print(site.getusersitepackages())"]
    environment = os.environ | base
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    packages = Path(said.stdout.strip())
    packages.mkdir(parents=True)
    (packages / "llama_cpp.py").touch()
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    assert load_failure(python, tmp_path) == ""
    (packages / "llama_cpp.py").write_text("raise OSError('no such library')")
    assert load_failure(python, tmp_path) == "OSError: no such library"


def test_tools_whose_python_is_gone_are_made_again(tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    (tools / "bin").mkdir(parents=True)
    (tools / "ready").touch()
    (tools / "bin" / "python").symlink_to(tmp_path / "removed")
    steps = []

    def run_step(title, *_, **__):
        steps.append(title)
        raise Failure("enough")

    monkeypatch.setattr(llama_wheel, "run_step", run_step)
    machine = Machine("Linux", "x86_64", "{}", nvcc=None, cuda_version="", gpus="")
    with pytest.raises(Failure, match="enough"):
        llama_wheel.build_wheel(
            None, "cpu", machine, None, tmp_path, Path(sys.executable), tmp_path / "log"
        )
    assert steps == ["preparing build tools"]


def test_flags_of_a_processor_are_those_that_the_product_notes_a_build_by():
    assert own_build.VECTOR_FLAG == llama_backend.VECTOR_FLAG


def test_a_home_that_does_not_resolve_ends_no_build(monkeypatch):
    named = {"LOCALSPEC_HOME": "~nobody-of-this-name"}
    assert llama_wheel.cache_directory(named, "Linux").name == "llama-cpp-python"
    unnamed = {"XDG_CACHE_HOME": "~nobody-of-this-name"}
    assert llama_wheel.usual_cache(unnamed, "Linux").name == "llama-cpp-python"
