"""Native code is opened by one door, which nobody else can put something behind."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest
from waiting import until

from localspec.core import kernel
from localspec.core.errors import Interrupted, LocalspecError, WorkerError
from localspec.core.files import native, paths, private
from localspec.core.kernel import build
from localspec.llama import remote
from localspec.llama.rpc import plugin

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes and owners of POSIX")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def umask() -> object:
    """A shell whose files everybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def stored(folder: Path) -> Path:
    return native.store(folder, "lib.so", lambda fresh: fresh.write_bytes(b"code") and None)


@pytest.mark.usefixtures("umask")
def test_a_library_is_stored_with_its_digest_in_folders_of_the_owner_alone(tmp_path: Path) -> None:
    path = stored(tmp_path / "home" / "cache" / "kernels")
    assert path.read_bytes() == b"code"
    assert native.trusted(path) == path
    assert native.is_stored(path)
    assert {p.name for p in path.parent.iterdir()} == {"lib.so", "lib.so.sha256", ".lock"}
    assert {mode(p) for p in (path.parent, path.parent.parent, tmp_path / "home")} == {0o700}
    assert mode(path) == 0o600


def test_what_another_process_compiles_just_now_is_waited_for(tmp_path: Path) -> None:
    waited: list[None] = []
    begun = threading.Event()

    def make(fresh: Path) -> None:
        begun.set()
        until(lambda: waited)
        fresh.write_bytes(b"code")

    others = threading.Thread(target=native.store, args=(tmp_path / "a", "lib.so", make))
    others.start()
    begun.wait(60)
    path = native.store(tmp_path / "a", "lib.so", pytest.fail, waiting=lambda: waited.append(None))
    others.join(60)
    assert path.read_bytes() == b"code"

    def stops() -> None:
        raise Interrupted("interrupted")

    with (
        filelock.FileLock(tmp_path / "a" / ".lock"),
        pytest.raises(Interrupted),
    ):
        native.store(tmp_path / "a", "lib.so", pytest.fail, waiting=stops)


def test_what_a_killed_build_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kernels" / "build-abc").mkdir(parents=True)
    (tmp_path / "kernels" / "build-abc" / "half").write_bytes(b"code")
    path = stored(tmp_path / "kernels")
    assert {p.name for p in path.parent.iterdir()} == {"lib.so", "lib.so.sha256", ".lock"}


def test_what_cannot_be_made_or_is_wrong_leaves_what_was_there(tmp_path: Path) -> None:
    path = stored(tmp_path / "kernels")

    def wrong(fresh: Path) -> None:
        native.trusted(fresh)  # as `opened` does, before it is stored
        raise LocalspecError("computes wrongly")

    with pytest.raises(ZeroDivisionError):
        native.store(path.parent, path.name, lambda _: 1 // 0 and None)
    with pytest.raises(LocalspecError, match="computes wrongly"):
        native.store(path.parent, path.name, lambda fresh: fresh.touch(), wrong)
    assert native.trusted(path).read_bytes() == b"code"
    assert {p.name for p in path.parent.iterdir()} == {"lib.so", "lib.so.sha256", ".lock"}


def test_a_library_with_one_other_byte_is_refused_and_made_again(tmp_path: Path) -> None:
    path = stored(tmp_path / "kernels")
    path.write_bytes(b"codf")
    with pytest.raises(LocalspecError, match="is not what was compiled here: its digest differs"):
        native.trusted(path)
    assert not native.is_stored(path)
    assert native.trusted(stored(path.parent)) == path


def test_a_library_without_a_digest_is_none_of_ours(tmp_path: Path) -> None:
    path = stored(tmp_path / "kernels")
    path.with_name("lib.so.sha256").unlink()
    with pytest.raises(LocalspecError, match="was not compiled here"):
        native.trusted(path)
    assert not native.is_stored(path)


@pytest.mark.parametrize("name", ["lib.so", "lib.so.sha256"])
def test_links_and_what_is_no_file_are_refused(tmp_path: Path, name: str) -> None:
    path = stored(tmp_path / "kernels")
    place = path.with_name(name)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LocalspecError, match="is a link"):
        native.trusted(path)
    place.unlink()
    os.mkfifo(place)
    assert not native.is_stored(path)  # whoever opens it waits for ever
    with pytest.raises(LocalspecError, match="is no file of ours"):
        native.trusted(path)


@pytest.mark.parametrize("bits", [0o002, 0o022, 0o777])
@pytest.mark.parametrize("which", ["lib.so", "lib.so.sha256", ".", "..", "../.."])
def test_what_others_may_write_to_is_refused_on_the_whole_way(
    tmp_path: Path, which: str, bits: int
) -> None:
    path = stored(tmp_path / "home" / "kernels")
    place = Path(os.path.normpath(path.parent / which))
    before = mode(place)
    place.chmod(before | bits)
    with pytest.raises(LocalspecError, match=rf"others may write to {place}.*chmod go-w '{place}'"):
        native.trusted(path)
    with pytest.raises(LocalspecError, match="others may write"):
        native.opened(path)
    place.chmod(before)
    assert native.trusted(path) == path


@as_root
@pytest.mark.parametrize("which", ["lib.so", "lib.so.sha256", ".", ".."])
def test_what_belongs_to_another_user_is_refused_for_root_too(tmp_path: Path, which: str) -> None:
    path = stored(tmp_path / "home" / "kernels")
    os.chown(path.parent / which, NOBODY, NOBODY)
    with pytest.raises(LocalspecError, match="belongs to another user"):
        native.trusted(path)


def test_a_sticky_folder_protects_what_is_in_it_and_is_no_place_for_a_library(
    tmp_path: Path,
) -> None:
    path = stored(tmp_path / "open" / "kernels")
    path.parent.parent.chmod(0o1777)
    assert native.trusted(path) == path
    path.parent.chmod(0o1777)
    with pytest.raises(LocalspecError, match="others may write"):
        native.trusted(path)


def test_a_group_of_one_is_not_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path / "open" / "kernels")
    path.parent.parent.chmod(0o770)
    monkeypatch.setattr(private, "_group_of_one", lambda place, group: True)
    assert native.trusted(path) == path
    monkeypatch.setattr(private, "_group_of_one", lambda place, group: False)
    with pytest.raises(LocalspecError, match="others may write"):
        native.trusted(path)


@pytest.mark.parametrize(
    ("name", "members", "primary", "of_one"),
    [
        ("me", [], 77, True),
        ("me", ["me"], 77, True),
        ("me", ["me", "you"], 77, False),
        ("staff", [], 77, False),
        ("me", [], 78, False),  # a group beside the user's own
    ],
)
def test_the_group_of_a_user_alone_has_the_users_name_and_nobody_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: list[str],
    primary: int,
    *,
    of_one: bool,
) -> None:
    user = SimpleNamespace(pw_gid=primary, pw_name="me", pw_uid=1)
    group = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user])
    assert private._group_of_one(tmp_path, 77) == of_one
    other = SimpleNamespace(pw_gid=77, pw_name="you", pw_uid=2)  # no list of members has it
    monkeypatch.setattr(pwd, "getpwall", lambda: [user, other])
    assert not private._group_of_one(tmp_path, 77)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user])
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"], raising=False)
    assert not private._group_of_one(tmp_path, 77)


def test_a_link_on_the_way_is_followed_before_the_folders_are_checked(tmp_path: Path) -> None:
    path = stored(tmp_path / "open" / "kernels")
    (tmp_path / "way").symlink_to(tmp_path / "open")
    assert native.trusted(tmp_path / "way" / "kernels" / "lib.so") == path
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LocalspecError, match="others may write"):
        native.trusted(tmp_path / "way" / "kernels" / "lib.so")


# -- what goes through it


@pytest.fixture
def planted() -> Path:
    """A plugin that was put into the cache while its folder was open to everybody."""
    folder = plugin._place().parent
    path = stored(paths.make(folder)).rename(folder / "libggml-rpc.so")
    (folder / "lib.so.sha256").rename(folder / "libggml-rpc.so.sha256")
    (folder / "ggml-rpc.h").write_text(
        "#define RPC_PROTO_MAJOR_VERSION 7\n#define RPC_PROTO_MINOR_VERSION 1\n"
        "#define RPC_PROTO_PATCH_VERSION 2\n"
    )
    folder.chmod(0o777)
    return path


def test_a_planted_plugin_is_not_loaded(planted: Path) -> None:
    with pytest.raises(WorkerError, match="others may write"):
        plugin.obtain(offline=True)
    with pytest.raises(WorkerError, match="others may write"):
        remote._load(planted)  # the process that opens it checks it too


@pytest.mark.skipif(build.compiler({}) is None, reason="there is no C compiler")
def test_a_planted_kernel_is_not_loaded_and_doctor_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lib" / "rows.so"
    monkeypatch.setattr(kernel, "library", lambda: path)
    monkeypatch.delenv(kernel.VARIABLE, raising=False)
    build.build({})
    kernel.loaded.cache_clear()
    assert kernel.loaded() is not None
    assert not kernel.refusal()
    kernel.loaded.cache_clear()
    path.parent.chmod(0o777)
    assert kernel.loaded() is None
    assert "others may write to" in kernel.refusal()
    with pytest.raises(LocalspecError, match="others may write to"):
        build.build({})
    kernel.loaded.cache_clear()


def test_llama_cpp_is_not_loaded_from_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    folder.chmod(0o777)
    line = [sys.executable, "-m", "localspec", "doctor"]
    environ = os.environ | {"LLAMA_CPP_LIB_PATH": str(folder)}
    for arguments in (line, [sys.executable, "-c", "import localspec.llama.library"]):
        done = subprocess.run(arguments, env=environ, capture_output=True, check=False, cwd=ROOT)
        said = (done.stdout + done.stderr).decode()
        assert re.search(f"others may write to {folder}", re.sub(r"\s+", " ", said)), said


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    folder = tmp_path / "lib"
    folder.mkdir(0o755)
    (folder / "libllama.so.0").write_bytes(b"code")
    (folder / "libllama.so").symlink_to("libllama.so.0")
    (folder / "notes.txt").touch()
    (folder / "notes.txt").chmod(0o666)  # nobody loads it
    return folder


def test_a_library_elsewhere_is_checked_file_by_file_and_where_links_lead(
    libraries: Path, tmp_path: Path
) -> None:
    (tmp_path / "way").symlink_to(libraries)
    assert native.closed_libraries(tmp_path / "way") == libraries
    (libraries / "libllama.so.0").chmod(0o666)
    with pytest.raises(LocalspecError, match=r"others may write to .*libllama\.so\.0"):
        native.closed_libraries(libraries)
    (libraries / "libllama.so.0").chmod(0o644)
    outside = tmp_path / "outside"
    outside.mkdir(0o777)
    outside.chmod(0o777)
    (outside / "evil.so").write_bytes(b"code")
    (libraries / "libggml.dylib").symlink_to(outside / "evil.so")
    with pytest.raises(LocalspecError, match=f"others may write to {outside}"):
        native.closed_libraries(libraries)


def test_what_nobody_loads_beside_a_library_is_passed_over(libraries: Path, tmp_path: Path) -> None:
    (libraries / "plugins.so.d").mkdir()
    (libraries / "libold.so").symlink_to("gone/libold.so.1")
    assert native.closed_libraries(libraries) == libraries
    (libraries / "libold.so").unlink()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (libraries / "libold.so").symlink_to(tmp_path / "open" / "libold.so")
    with pytest.raises(LocalspecError, match=f"others may write to {tmp_path / 'open'}"):
        native.closed_libraries(libraries)


@as_root
def test_a_library_elsewhere_belongs_to_nobody_else(libraries: Path) -> None:
    os.chown(libraries / "libllama.so.0", NOBODY, NOBODY)
    with pytest.raises(LocalspecError, match="belongs to another user"):
        native.closed_libraries(libraries)


def linked(folder: Path, name: str, ways: str, *needed: Path) -> Path:
    """A library with a RUNPATH that needs others."""
    folder.mkdir(exist_ok=True)
    line = [*build.compiler({}), "-shared", "-o", str(folder / name), "-x", "c", os.devnull]
    line += ["-x", "none", "-Wl,--no-as-needed", f"-Wl,-rpath,{ways}", f"-Wl,-soname,{name}"]
    subprocess.run([*line, *map(str, needed)], check=True)
    folder.chmod(0o755)
    (folder / name).chmod(0o755)
    return folder / name


elf_only = pytest.mark.skipif(
    sys.platform != "linux" or build.compiler({}) is None, reason="makes libraries of Linux"
)


@elf_only
def test_where_a_library_elsewhere_has_others_looked_for_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMake's build trees name such places, and so do builds for CUDA: NVIDIA's packages."""
    base = linked(tmp_path / "nvidia", "libbase.so", "$ORIGIN:/usr/local/cuda/lib64")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    lib = tmp_path / "lib"
    away = tmp_path / "away" / "lib"
    monkeypatch.chdir(tmp_path)
    fine = ("$ORIGIN", "${ORIGIN}/../nvidia", str(base.parent), f"{base.parent}:", str(away))
    for ways in fine:
        linked(lib, "libllama.so", ways, base)
        assert native.closed_libraries(lib) == lib
    for ways, reason in {
        f"$ORIGIN:{tmp_path / 'shared'}": "others may write to",
        str(tmp_path / "shared" / "gone" / "lib"): "others may write to",
        "/opt/$LIB": "does not know which folder",
        "nvidia": "libbase.so is in the working directory",
    }.items():
        linked(lib, "libllama.so", ways, base)
        with pytest.raises(LocalspecError, match=f"has libraries looked for in .*{reason}"):
            native.closed_libraries(lib)
    linked(lib, "libllama.so", "$ORIGIN/../nvidia", base)
    base.chmod(0o777)
    with pytest.raises(LocalspecError, match=f"others may write to {base}"):
        native.closed_libraries(lib)
    base.chmod(0o755)
    base.parent.chmod(0o777)
    with pytest.raises(LocalspecError, match=f"others may write to {base.parent}"):
        native.closed_libraries(lib)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can look into: pytest's own are for the user who runs it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(os.path.realpath(folder))
        place.chmod(0o755)
        yield place


@contextlib.contextmanager
def not_as_root() -> Iterator[None]:
    """Root may look into everything."""
    user = os.geteuid()
    os.seteuid(user or NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@elf_only
def test_a_folder_that_a_library_names_and_nobody_here_can_look_into_is_passed_over(
    public: Path,
) -> None:
    """A llama.cpp that root built in its home names one; the loader passes it over too."""
    built = public / "home" / "build"
    built.mkdir(parents=True)
    base = linked(built, "libbase.so", "$ORIGIN")
    ways = (str(built), str(public / ("x" * 300)), str(built / ".." / "open"))
    libraries = [linked(public / f"lib{i}", "libllama.so", w, base) for i, w in enumerate(ways)]
    built.parent.chmod(0)
    try:
        with not_as_root():
            for library in libraries:
                assert native.closed_libraries(library.parent) == library.parent
        (public / "shared").mkdir()
        (public / "shared").chmod(0o777)
        way = public / "shared" / "home"
        way.mkdir(0)
        beside = linked(public / "lib", "libllama.so", str(way / "build"), libraries[0])
        with not_as_root(), pytest.raises(LocalspecError, match=r"others may write to .*shared"):
            native.closed_libraries(beside.parent)
    finally:
        built.parent.chmod(0o700)


@elf_only
def test_a_library_that_cannot_be_read_is_not_looked_into(public: Path) -> None:
    library = linked(public / "lib", "libllama.so", "$ORIGIN")
    other = linked(public / "lib", "libother.so", "/opt/$LIB")
    other.chmod(0)
    with not_as_root():
        assert native.closed_libraries(library.parent) == library.parent


@elf_only
def test_a_damaged_library_is_refused_and_one_that_is_none_of_llama_cpp_is_said(
    tmp_path: Path,
) -> None:
    whole = linked(tmp_path / "lib", "libllama.so", "$ORIGIN")
    line = [sys.executable, "-m", "localspec", "run", "-m", "demo", "hi"]
    environ = os.environ | {"LLAMA_CPP_LIB_PATH": str(whole.parent)}
    done = subprocess.run(line, env=environ, capture_output=True, check=False, cwd=ROOT)
    assert done.stderr.startswith(b"localspec: llama.cpp cannot be loaded: "), done.stderr
    assert done.stderr.count(b"\n") == 1
    data = whole.read_bytes()
    for length in range(5, 2000, 97):
        whole.write_bytes(data[:length])
        with pytest.raises(LocalspecError, match="is no whole library"):
            native.closed_libraries(whole.parent)
    whole.write_bytes(data[:32] + b"\xff" * 8 + data[40:])  # where its program header is
    with pytest.raises(LocalspecError, match="is no whole library"):
        native.closed_libraries(whole.parent)


def test_what_is_loaded_is_what_was_checked_though_a_link_on_the_way_changes(
    libraries: Path, tmp_path: Path
) -> None:
    (tmp_path / "way").symlink_to(libraries)
    line = "import os, localspec.llama; print(os.environ['LLAMA_CPP_LIB_PATH'])"
    environ = os.environ | {"LLAMA_CPP_LIB_PATH": str(tmp_path / "way")}
    done = subprocess.run(
        [sys.executable, "-c", line], env=environ, capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout.decode().strip() == str(libraries)


def test_a_folder_of_libraries_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Somebody else might make it before llama-cpp-python looks there."""
    environ = os.environ | {"LLAMA_CPP_LIB_PATH": str(tmp_path / "none")}
    line = [sys.executable, "-m", "localspec", "run", "Hi"]
    done = subprocess.run(line, env=environ, capture_output=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert b"is no folder: correct the variable" in b" ".join(done.stderr.split())
    assert len(done.stderr.splitlines()) == 1


# -- no other door

DOORS = {
    Path("localspec/llama/remote.py"): "llama.cpp opens what the door says is trusted",
    Path("localspec/kernels/library.py"): "llama.cpp's own libraries, from a folder that is closed",
    Path("localspec/compiling/variants.py"): "likewise, where a build has one for each processor",
}
"""Modules that open native code; the door itself does so by a parameter."""
OPENS = re.compile(
    r"(?<![\w\[])(ctypes\.)?(CDLL|PyDLL|WinDLL)\((?!None\)|str\(path\), mode=os\.RTLD_NOLOAD\))"
    r"|LoadLibrary|\b(cdll|pydll|windll)\b|ggml_backend_load|ExtensionFileLoader|\.dlopen\("
)
MAKES = re.compile(r"\.mkdir\(|makedirs\(")
MAKERS = {
    Path("localspec/core/files/private.py"): "makes them all",
    Path("localspec/cli/completion.py"): "the folders of shells",
    Path("localspec/models/hub/download.py"): "the Hub's cache, shared with other programs",
    Path("localspec/models/hub/remove.py"): "likewise",
    Path("localspec/models/catalog/hf_cache.py"): "likewise",
    Path("localspec/compiling/llama_source.py"): "below a temporary folder",
}


def modules() -> list[Path]:
    return [p.relative_to(ROOT) for top in ("localspec", "tui") for p in (ROOT / top).rglob("*.py")]


def found(pattern: re.Pattern[str]) -> set[Path]:
    return {path for path in modules() if pattern.search((ROOT / path).read_text())}


def test_no_module_opens_native_code_but_by_the_door() -> None:
    assert found(OPENS) == set(DOORS)


def test_no_module_makes_folders_itself() -> None:
    assert found(MAKES) == set(MAKERS)


def test_the_lint_knows_a_door_when_it_sees_one() -> None:
    assert OPENS.search("ctypes.CDLL(str(path))")
    assert OPENS.search("ctypes.PyDLL(name)")
    assert OPENS.search("ctypes.cdll.LoadLibrary(name)")
    assert OPENS.search("ctypes.cdll.name")
    assert OPENS.search("from ctypes import CDLL\nCDLL(name)")
    assert OPENS.search("_ctypes.dlopen(name, 0)")
    assert not OPENS.search("ctypes.CDLL(None).strlen")
