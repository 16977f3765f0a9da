"""The plugin is compiled from the very source of the installed llama.cpp, or the error says why."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tarfile
from pathlib import Path

import pytest

from localspec.compiling import llama_source
from localspec.core.errors import WorkerError
from localspec.llama.rpc import plugin
from localspec.llama.rpc.handshake import Version

ROOT = Path(__file__).parents[3]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A source that is known, and nothing left by builds."""
    made = {name: f"// {name}\n".encode() for name in plugin.FILES}
    made["ggml/include/ggml-rpc.h"] = (
        b"#define RPC_PROTO_MAJOR_VERSION    7\n"
        b"#define RPC_PROTO_MINOR_VERSION    1\n#define RPC_PROTO_PATCH_VERSION    2\n"
    )
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in made.items()}
    monkeypatch.setattr(plugin, "FILES", digests)
    monkeypatch.setattr(llama_source, "left_by_builds", list)
    return made


@pytest.fixture
def folder(files: dict[str, bytes], tmp_path: Path) -> Path:
    llama_source.Source(files).write(tmp_path / "source/vendor/llama.cpp")
    return tmp_path / "source"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes its arguments into the file that it is to make."""
    path = tmp_path / "cxx"
    path.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def test_the_version_and_the_hash_are_those_of_the_lock() -> None:
    lock = (ROOT / "requirements" / "llama.lock").read_text(encoding="utf-8")
    (version,) = re.findall(r"^llama-cpp-python==(\S+)", lock, re.MULTILINE)
    assert version == llama_source.VERSION
    assert f"sha256:{llama_source.ARCHIVE_SHA256}" in lock


@pytest.mark.usefixtures("compiler")
def test_it_is_compiled_once_and_knows_its_protocol(folder: Path) -> None:
    told: list[bool] = []
    made = plugin.obtain(folder, on_start=lambda: told.append(True))
    assert made.version == Version(7, 1, 2)
    assert "-DGGML_BACKEND_DL" in made.path.read_text()
    assert plugin.obtain(None, offline=True, on_start=lambda: told.append(True)) == made
    assert told == [True]
    names = {path.name for path in made.path.parent.iterdir()}
    assert names == {"libggml-rpc.so", "libggml-rpc.so.sha256", "ggml-rpc.h", ".lock"}


@pytest.mark.usefixtures("compiler")
def test_nothing_is_said_to_be_compiled_where_the_source_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llama_source, "left_by_builds", list)
    told: list[bool] = []
    with pytest.raises(WorkerError, match="--offline"):
        plugin.obtain(None, offline=True, on_start=lambda: told.append(True))
    assert not told


@pytest.mark.usefixtures("compiler")
def test_an_archive_is_a_source_too(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "llama_cpp_python.tar.gz"
    with tarfile.open(archive, "w:gz") as bundle:
        bundle.add(folder, "llama_cpp_python-0")
    assert plugin.obtain(archive).path.is_file()


@pytest.mark.usefixtures("compiler")
def test_a_source_with_one_other_byte_is_refused(folder: Path) -> None:
    with (folder / "vendor/llama.cpp/ggml/src/ggml-impl.h").open("ab") as file:
        file.write(b" ")
    with pytest.raises(WorkerError, match=r"is not the llama\.cpp of llama-cpp-python"):
        plugin.obtain(folder)


@pytest.mark.usefixtures("files", "compiler")
def test_bad_places_and_no_network_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="no folder or archive"):
        plugin.obtain(tmp_path / "nothing")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(WorkerError, match="cannot read the source"):
        plugin.obtain(tmp_path / "text")
    with pytest.raises(WorkerError, match="leave out --offline once, or give a folder"):
        plugin.obtain(None, offline=True)


@pytest.mark.usefixtures("files", "compiler")
def test_an_index_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(WorkerError, match=r"cannot download the source .* http://127\.0\.0\.1:1/"):
        plugin.obtain()


@pytest.mark.usefixtures("files", "compiler")
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ALL_PROXY", "socks5://me:secret@127.0.0.1:1", "needs the package socksio"),
        ("ALL_PROXY", "socks://127.0.0.1:1", "needs the package socksio"),
        ("HTTP_PROXY", "socks9://me:secret@x", "HTTP_PROXY=socks9://.* is not a usable proxy"),
        ("HTTP_PROXY", "http://[x", "is not a usable proxy"),
        ("SSL_CERT_FILE", "/no/such", "certificates .* cannot be read"),
    ],
)
def test_proxies_and_certificates_that_cannot_be_used_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    for variable in ("ALL_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)  # of socksio
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv(name, value)
    with pytest.raises(WorkerError, match=why) as failed:
        plugin.obtain()
    assert "secret" not in str(failed.value)


def test_without_a_compiler_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(WorkerError, match=r"no C\+\+ compiler: .*install"):
        plugin.obtain(folder)


def test_a_compiler_that_fails_leaves_nothing(folder: Path, compiler: Path) -> None:
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 1\n")
    with pytest.raises(WorkerError, match=r"does not compile: x\.cpp:1: error: no such"):
        plugin.obtain(folder)
    assert not plugin.available()


def test_what_a_compiler_lacks_is_said_with_what_to_do(folder: Path, compiler: Path) -> None:
    compiler.write_text('#!/bin/sh\necho "error: $LC_ALL, Killed" >&2\nexit 1\n')
    with pytest.raises(WorkerError, match="error: C, Killed; memory ran out"):
        plugin.obtain(folder)
    compiler.write_text("no program")
    with pytest.raises(WorkerError, match="cxx: Exec format error"):
        plugin.obtain(folder)


def test_another_llama_cpp_is_refused_by_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_installed", lambda: "0.4.0")
    with pytest.raises(WorkerError, match=r"0\.4\.0 is installed"):
        plugin.obtain(folder)
