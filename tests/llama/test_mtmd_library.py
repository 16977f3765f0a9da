"""The library for pictures is compiled once, from the very source of the installed llama.cpp."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from localspec.compiling import cxx, llama_source
from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.llama import mtmd_library

NAMES = ("include/llama.h", "tools/mtmd/clip.cpp", "tools/mtmd/mtmd.cpp", "tools/mtmd/mtmd.h")
_LOG = "units"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source that is known, and nothing left by builds."""
    made = {name: f"// {name}\n".encode() for name in NAMES}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in made.items()}
    monkeypatch.setattr(mtmd_library, "FILES", digests)
    monkeypatch.setattr(llama_source, "left_by_builds", list)
    folder = tmp_path / "source"
    llama_source.Source(made).write(folder / "vendor/llama.cpp")
    monkeypatch.setenv(llama_source.VARIABLE, str(folder))
    return folder


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes its arguments into the file that it is to make, and into a log."""
    path = tmp_path / "cxx"
    log = tmp_path / _LOG
    path.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\necho "$@" >> {log}\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def stored() -> bool:
    return native.is_stored(mtmd_library.place() / mtmd_library.NAME)


def test_the_list_has_the_parts_of_the_encoder() -> None:
    files = mtmd_library.FILES
    assert {"tools/mtmd/mtmd.cpp", "tools/mtmd/clip.cpp", "include/llama.h"} <= files.keys()
    assert not any("helper" in name for name in files)  # which brings other libraries along
    assert all(len(digest) == 64 for digest in files.values())


def test_it_is_compiled_once(source: Path, compiler: Path, tmp_path: Path) -> None:
    told: list[float] = []
    assert not stored()
    path = mtmd_library.obtain(on_unit=told.append)
    lines = (tmp_path / _LOG).read_text().splitlines()
    assert sorted(line.split()[-1].rsplit("/", 1)[-1] for line in lines[:2]) == ["clip.o", "mtmd.o"]
    assert "-lllama" in lines[2]
    assert "-shared" in lines[2]
    assert told[0] == 0.0
    assert told == sorted(told)
    assert told[-1] == pytest.approx(2 / 3)
    assert stored()
    assert mtmd_library.obtain(offline=True, on_unit=told.append) == path
    assert len((tmp_path / _LOG).read_text().splitlines()) == 3
    assert {p.name for p in path.parent.glob("lib*")} == {"libmtmd.so", "libmtmd.so.sha256"}


def test_what_was_exchanged_is_not_opened(source: Path, compiler: Path) -> None:
    path = mtmd_library.obtain()
    path.write_bytes(b"something else")
    assert not stored()  # it is made again
    assert mtmd_library.obtain().read_bytes() != b"something else"


def test_a_source_with_one_other_byte_is_refused(source: Path, compiler: Path) -> None:
    with (source / "vendor/llama.cpp/tools/mtmd/clip.cpp").open("ab") as file:
        file.write(b" ")
    with pytest.raises(LocalspecError, match=r"is not the llama\.cpp of llama-cpp-python"):
        mtmd_library.obtain()


def test_a_compiler_that_fails_is_one_sentence_and_leaves_nothing(
    source: Path, compiler: Path
) -> None:
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 1\n")
    with pytest.raises(LocalspecError, match=r"does not compile: x\.cpp:1: error: no such"):
        mtmd_library.obtain()
    assert not stored()


def test_what_a_compiler_lacks_is_said_with_what_to_do(source: Path, compiler: Path) -> None:
    compiler.write_text('#!/bin/sh\necho "error: $LC_ALL, Killed" >&2\nexit 1\n')
    with pytest.raises(LocalspecError, match="error: C, Killed; memory ran out"):
        mtmd_library.obtain()
    compiler.write_text("no program")
    with pytest.raises(LocalspecError, match="cxx: Exec format error"):
        mtmd_library.obtain()


def test_units_are_compiled_at_once_where_the_system_tells_no_affinity(
    source: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    began = tmp_path / "began"
    began.mkdir()
    each_waits = f"touch {began}/$$; until [ $(ls {began} | wc -l) = 2 ]; do sleep 0.05; done"
    compiler.write_text(
        '#!/bin/sh\nfor last; do :; done\necho > "$last"\n'
        f'case "$last" in *.o) {each_waits};; esac\n'
    )
    monkeypatch.setattr(mtmd_library, "_PATIENCE_S", 60.0)
    assert mtmd_library.obtain().is_file()


def test_whoever_is_told_may_stop_it(source: Path, compiler: Path) -> None:
    def stop(part: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mtmd_library.obtain(on_unit=stop)
    assert not stored()


def test_what_is_missing_is_said(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        with pytest.raises(LocalspecError, match=r"no C\+\+ compiler: .*install"):
            mtmd_library.obtain()
    with monkeypatch.context() as patch:
        patch.setattr(cxx, "installed", lambda: "0.4.0")
        with pytest.raises(LocalspecError, match=r"0\.4\.0 is installed"):
            mtmd_library.obtain()
    monkeypatch.delenv(llama_source.VARIABLE)
    with pytest.raises(LocalspecError, match=r"leave out --offline once, or name a folder"):
        mtmd_library.obtain(offline=True)
