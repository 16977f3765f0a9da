"""A llama.cpp that was built beside an installation is used where it fits, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

import localspec
from localspec.compiling import cxx, llama_source, own_build
from localspec.core.errors import LocalspecError
from localspec.core.kernel import build as row_kernel_build
from localspec.doctor import build as build_finding
from localspec.llama import mtmd_library
from localspec.loading.soundness import Soundness


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


def cpuinfo(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    lines = ["x86_64", "model name\t: A processor", f"flags\t\t: {words}"]
    monkeypatch.setattr(own_build, "processor", lambda: lines)


def test_a_word_that_an_update_of_the_kernel_adds_leaves_the_build_in_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo(monkeypatch, "fpu avx2 fma its_no_pti")
    own_build.note(folder)
    cpuinfo(monkeypatch, "fpu avx2 new_word fma")
    assert own_build.noted() == folder
    cpuinfo(monkeypatch, "fpu avx2 fma amx_int8")
    assert own_build.noted() is None


def test_a_build_for_another_c_library_is_not_used_and_one_line_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that two machines share: the newer one's build does not load on the older one."""
    assert own_build.passed_over() == ""
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.28"))
    assert own_build.noted() is None
    own_build.use()
    assert own_build.VARIABLE not in os.environ
    assert "give the command again, or with --remove" in own_build.passed_over()
    found = build_finding.finding(Soundness(extra_buffers=True), None)
    assert own_build.passed_over() in found.text
    monkeypatch.setenv(own_build.VARIABLE, str(folder))
    assert own_build.passed_over() == "", "the user has chosen"
    monkeypatch.delenv(own_build.VARIABLE)
    own_build.forget()
    assert own_build.passed_over() == ""


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


def test_a_compiler_whose_quotes_do_not_close_is_none_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", 'g++ "')
    assert cxx.command() is None
    assert cxx.how_to_install().startswith('CXX is g++ "')
    with pytest.raises(LocalspecError, match=r"no C\+\+ compiler: CXX is"):
        mtmd_library.obtain()
    assert row_kernel_build.compiler({"CC": 'cc "'}) is None


def test_a_home_that_does_not_resolve_has_no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name/cache")
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    assert isinstance(list(llama_source.left_by_builds()), list)


USERS = """
import sys
from pathlib import Path
from localspec.cli import build_llama
build_llama._SCRIPT = Path(sys.argv[1])
build_llama.command.main([], standalone_mode=False)
"""
SCRIPT = """
import json
import beside
import of_the_user
from localspec.core.files import private
print("progress of some kind")
print(json.dumps("/a folder\\nwith two lines"))
"""


def test_a_build_beside_a_users_own_packages_is_made_and_noted_by_its_whole_path(
    tmp_path: Path,
) -> None:
    """`pip install --user`, and a home whose path has a line break."""
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    asked = [
        str(base),
        "-c",
        "import site; print(site.ENABLE_USER_SITE, site.getusersitepackages())",
    ]
    users = os.environ | {"PYTHONUSERBASE": str(tmp_path), "LOCALSPEC_HOME": str(tmp_path / "home")}
    said = subprocess.run(asked, env=users, capture_output=True, text=True, check=True).stdout
    enabled, _, packages = said.strip().partition(" ")
    if enabled != "True":
        pytest.skip("this Python has no packages of users")
    Path(packages).mkdir(parents=True)
    (Path(packages) / "of_the_user.py").touch()
    places = [str(Path(localspec.__file__).parents[1]), *site.getsitepackages()]
    (Path(packages) / "all.pth").write_text("\n".join(places))
    (tmp_path / "beside.py").touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    line = [str(base), "-c", USERS, str(tmp_path / "script.py")]
    done = subprocess.run(line, env=users, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    note = json.loads((tmp_path / "home/cache/own-llama.json").read_text())
    assert note["folder"] == "/a folder\nwith two lines"
    assert "used from now on" in done.stderr
    users[own_build.VARIABLE] = str(tmp_path)
    done = subprocess.run(line, env=users, capture_output=True, text=True, check=True)
    assert f"LLAMA_CPP_LIB_PATH goes first, and names {tmp_path}: unset it" in done.stderr
