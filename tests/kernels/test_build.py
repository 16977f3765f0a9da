"""Kernels are compiled once, from checked headers, whole or not at all; or one line says why."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from localspec.compiling import cxx, llama_source
from localspec.core.errors import LocalspecError
from localspec.core.files import native, paths, private
from localspec.kernels import build, instruction_sets
from localspec.kernels.compiler import Compiler, RefusedError
from localspec.kernels.instruction_sets import InstructionSet, of_machine, title

pytestmark = pytest.mark.skipif(
    os.environ.get("LOCALSPEC_KERNELS") == "llama",
    reason="our kernels are left out",
)

COMPILER = """#!/bin/sh
for last; do :; done
case "$*" in *--version*) echo "fake 1.0"; exit;; *"{fails}"*) echo "a.h:1: error: no" >&2; exit 1;;
esac
echo "$@" > "$last"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes its arguments into the file that it is to make."""
    path = tmp_path / "cxx"
    path.write_text(COMPILER.format(fails="nothing of it"))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setattr(build, "of_machine", lambda *_: of_machine("x86_64"))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # the cache, not the environment
    return path


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source of llama.cpp whose digests are known."""
    import hashlib

    files = {name: f"// {name}\n".encode() for name in instruction_sets.FILES}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(instruction_sets, "FILES", digests)
    llama_source.Source(files).write(tmp_path / "llama.cpp")
    monkeypatch.setattr(llama_source, "left_by_builds", lambda: [tmp_path / "llama.cpp"])
    return tmp_path / "llama.cpp"


@pytest.mark.usefixtures("compiler", "source")
def test_it_is_compiled_once_for_all_instruction_sets() -> None:
    told: list[str] = []
    made = build.obtain(on_start=lambda: told.append("start"), on_unit=told.append)
    assert set(made.units) == {"avx2", "avxvnni", "avx512vnni", "amx"}
    assert told[0] == "start"
    assert set(told[1:]) == set(made.units)
    best_first = "LS_EACH(amx) LS_EACH(avx512vnni) LS_EACH(avxvnni) LS_EACH(avx2)"
    assert f"-DLS_UNITS={best_first}" in made.path.read_text()
    assert build.obtain(offline=True, on_start=lambda: told.append("again")) == made
    assert "again" not in told
    assert {p.name for p in made.path.parent.iterdir()} == {
        ".lock",
        *(build.NAME, f"{build.NAME}.sha256", "build.json"),
    }
    assert json.loads((made.path.parent / "build.json").read_text())["compiler"] == "fake 1.0"


@pytest.mark.usefixtures("source")
def test_an_instruction_set_that_the_compiler_does_not_know_is_left_out(compiler: Path) -> None:
    compiler.write_text(COMPILER.format(fails="-mavxvnni"))
    made = build.obtain()
    assert made.units == ("avx2", "avx512vnni", "amx")
    assert made.left_out == {"avxvnni": "a.h:1: error: no"}
    assert build.stored() == made


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("fails", ["unit.cpp", "plugin.cpp"])
def test_a_compiler_that_fails_leaves_nothing(compiler: Path, fails: str) -> None:
    compiler.write_text(COMPILER.format(fails=fails))
    with pytest.raises(RefusedError, match=r"kernels do not compile: a\.h:1: error: no"):
        build.obtain()
    assert build.stored() is None


NOT_THE_SOURCE = {
    "c++: fatal error: Killed signal terminated program cc1plus": "memory ran out",
    "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes": "memory ran out",
    "/tmp/c.s: fatal error: error writing to /tmp/c.s: No space left on device": "set TMPDIR",
    "unit.cpp:1: internal compiler error: Segmentation fault": "compiler itself failed",
}
"""Last words of compilers that failed for another reason than the source, and what is said then."""


def failing(compiler: Path, what: str, words: str, *, times: int = 99) -> None:
    """Let the compiler fail so at the first arguments that contain ``what``."""
    count = compiler.with_name("count")
    compiler.write_text(
        f"""#!/bin/sh
for last; do :; done
case "$*" in *--version*) echo "fake 1.0"; exit;; *"{what}"*)
    echo >> "{count}"
    if [ "$(wc -l < "{count}")" -le {times} ]; then echo "{words}" >&2; exit 1; fi;;
esac
echo "$@" > "$last"
"""
    )


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("words", [*NOT_THE_SOURCE][:3])
def test_an_instruction_set_for_which_memory_or_room_lacked_is_not_left_out_for_ever(
    compiler: Path, words: str
) -> None:
    failing(compiler, "-mavxvnni", words)
    with pytest.raises(LocalspecError, match=NOT_THE_SOURCE[words]) as told:
        build.obtain()
    assert not isinstance(told.value, RefusedError), "tried again in an hour, not in a day"
    assert build.stored() is None
    compiler.write_text(COMPILER.format(fails="nothing of it"))
    assert not build.obtain().left_out


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("words", NOT_THE_SOURCE)
def test_linking_for_which_memory_or_room_lacked_is_no_refusal(compiler: Path, words: str) -> None:
    failing(compiler, "plugin.cpp", words)
    with pytest.raises(LocalspecError, match=NOT_THE_SOURCE[words]) as told:
        build.obtain()
    assert not isinstance(told.value, RefusedError)
    assert build.stored() is None


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("words", NOT_THE_SOURCE)
def test_what_failed_beside_others_is_tried_once_more_alone(compiler: Path, words: str) -> None:
    failing(compiler, "-mavxvnni", words, times=1)
    assert not build.obtain().left_out


@pytest.mark.usefixtures("source")
def test_an_instruction_set_at_which_the_compiler_crashes_twice_is_left_out(
    compiler: Path,
) -> None:
    failing(compiler, "-mavxvnni", "unit.cpp:1: internal compiler error: in expand, at a.cc:1")
    assert [*build.obtain().left_out] == ["avxvnni"]


@pytest.mark.usefixtures("source")
def test_a_compiler_that_a_signal_ends_is_no_refusal(compiler: Path) -> None:
    compiler.write_text('#!/bin/sh\ncase "$*" in *unit.cpp*) kill -9 $$;; esac\n')
    with pytest.raises(LocalspecError, match="memory ran out") as told:
        build.obtain()
    assert not isinstance(told.value, RefusedError)


@pytest.mark.usefixtures("source")
def test_a_compiler_that_does_not_end_or_start_is_no_refusal(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.kernels.compiler._PATIENCE_S", 0.2)
    compiler.write_text('#!/bin/sh\ncase "$*" in *mavxvnni*) exec sleep 60;; esac\n')
    with pytest.raises(LocalspecError, match="takes longer than") as told:
        build.obtain()
    assert not isinstance(told.value, RefusedError)
    compiler.write_text("no program")
    with pytest.raises(LocalspecError, match="cxx: ") as told:
        build.obtain()
    assert not isinstance(told.value, RefusedError)
    assert build.stored() is None


@pytest.mark.usefixtures("compiler")
def test_a_header_with_one_other_byte_is_not_compiled(source: Path) -> None:
    with (source / "ggml/src/ggml-impl.h").open("ab") as file:
        file.write(b" ")
    told: list[bool] = []
    with pytest.raises(LocalspecError, match="start with the network once"):
        build.obtain(offline=True, on_start=lambda: told.append(True))
    assert not told, "nothing is compiled"


@pytest.mark.usefixtures("source")
def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "places", list)
    monkeypatch.setattr(cxx, "command", lambda: None)
    with pytest.raises(LocalspecError, match=r"no C\+\+ compiler: .*install"):
        build.obtain()


def test_another_llama_cpp_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "installed", lambda: "0.4.0")
    with pytest.raises(LocalspecError, match=r"made for llama-cpp-python 0\.3\.36, installed is 0"):
        build.obtain()


def test_a_processor_without_kernels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "of_machine", lambda: of_machine("riscv64"))
    assert build.impossible().startswith("there are none for ")


@pytest.mark.usefixtures("compiler", "source")
def test_a_library_of_another_source_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build.obtain()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "unit.cpp").write_text("int x;")
    monkeypatch.setattr(build, "SOURCE", tmp_path / "source")
    build.key.cache_clear()
    try:
        assert build.places()[0] != made.path.parent
        assert build.stored() is None
    finally:
        monkeypatch.undo()
        build.key.cache_clear()


def test_sets_have_titles() -> None:
    assert title("avx512vnni") == "AVX-512 VNNI"
    assert title("new") == "new"
    assert all(isinstance(s, InstructionSet) for s in of_machine("aarch64"))


@pytest.mark.usefixtures("compiler", "source")
def test_kernels_in_a_wheel_of_llama_cpp_are_found_beside_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever C library this machine has: the wheel's own is an older one."""
    libraries = tmp_path / "lib"
    libraries.mkdir(mode=0o755)
    monkeypatch.setattr(cxx, "library_folder", lambda: libraries)
    monkeypatch.setattr(build, "places", lambda: [tmp_path / "cache"])
    assert build.stored() is None
    folder = build.shipped_folder(libraries)
    made = build.store(
        Compiler((str(tmp_path / "cxx"),), libraries, of_machine("x86_64")),
        instruction_sets.headers(offline=True),
        [folder],
    )
    assert made.path.parent == folder
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "9.99"))
    assert build.stored() == made


@pytest.mark.usefixtures("compiler", "source")
@pytest.mark.parametrize("open_folder", [".", "lib"])
def test_what_others_may_write_to_in_the_environment_is_passed_over_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_folder: str
) -> None:
    """Environments are so that were made where a umask lets a shared group write."""
    prefix = private.make(tmp_path / "env" / "lib", 0o755).parent
    monkeypatch.setattr(sys, "prefix", str(prefix))
    build.key()  # it is kept, and has to be that of the libraries here
    monkeypatch.setattr(cxx, "library_folder", lambda: prefix / "lib")
    in_environment = build.obtain()
    assert in_environment.path.is_relative_to(prefix)
    (prefix / open_folder).chmod(0o777)
    assert build.stored() is None
    made = build.obtain()
    assert made.path.is_relative_to(paths.cache_dir())
    assert native.trusted(made.path) == made.path
    (prefix / open_folder).chmod(0o755)
    shipped = build.shipped_folder(prefix / "lib")
    in_environment.path.parent.rename(private.make(shipped.parent) / shipped.name)
    shutil.rmtree(made.path.parent)
    assert build.stored() is not None
    (prefix / open_folder).chmod(0o777)
    assert build.stored() is None


@pytest.mark.usefixtures("compiler", "source")
def test_they_are_linked_to_no_level_of_a_build_that_has_several(tmp_path: Path) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir(mode=0o755)
    (libraries / "libggml-cpu-haswell.so").touch()
    compiler = Compiler((str(tmp_path / "cxx"),), libraries, of_machine("x86_64"))
    assert "-lggml-cpu" not in compiler._link()
    (libraries / "libggml-cpu-haswell.so").unlink()
    assert ("-lggml-cpu" in compiler._link()) == (sys.platform != "darwin")


@pytest.mark.usefixtures("source")
def test_what_another_process_compiles_just_now_is_taken(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build.obtain()
    folder = made.path.parent

    def is_there(_folder: Path, name: str, _make: object, **_: object) -> Path:
        return folder / name  # without a call of what makes it

    monkeypatch.setattr(native, "store", is_there)
    assert build._store(None, None, folder, None, shared=False) == made  # type: ignore[arg-type]
    (folder / "build.json").unlink()
    with pytest.raises(LocalspecError, match="was damaged"):
        build._store(None, None, folder, None, shared=False)  # type: ignore[arg-type]
