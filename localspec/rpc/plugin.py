"""The RPC plugin of llama.cpp: compiled once from the source of the installed build.

The wheel of llama-cpp-python has no RPC. Its two files compile alone, in some seconds, to a library
that llama.cpp loads as it loads its other back ends. It is stored in the cache folder, under a key
of the source and of the machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths
from localspec.errors import WorkerError
from localspec.rpc.handshake import Version
from localspec.rpc.plugin_source import FILES, VERSION, Source, find

_FOLDER = "rpc-plugin"
_NAME = "libggml-rpc.so"
_HEADER = "ggml/include/ggml-rpc.h"
_PATIENCE_S = 600.0
_UNITS = ("ggml/src/ggml-rpc/ggml-rpc.cpp", "ggml/src/ggml-rpc/transport.cpp")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")
_DEFINES = ("-DGGML_BACKEND_DL", "-DGGML_BACKEND_BUILD", "-DGGML_BACKEND_SHARED", "-DGGML_SHARED")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A compiled plugin."""

    path: Path
    version: Version
    """The version of the protocol that it speaks."""


def obtain(
    given: Path | None = None,
    *,
    offline: bool = False,
    on_start: Callable[[], None] | None = None,
) -> Plugin:
    """The plugin for the installed llama.cpp; compiled now, after ``on_start``, if it is not there.

    ``given`` is a folder or archive with its source, from which it is compiled in any case.

    Raises:
        WorkerError: there is no compiler or no source, or it does not compile; says what to do.
    """
    installed = _installed()
    if installed != VERSION:
        raise WorkerError(
            f"other machines need llama-cpp-python {VERSION}, whose RPC source is known, and "
            f"{installed} is installed; install localspec again"
        )
    folder = paths.cache_dir() / _FOLDER / _key()
    path = folder / _NAME
    if given is not None or not path.is_file():
        if on_start is not None:
            on_start()
        command = _compiler()
        source = find(given, offline=offline)
        _compile(command, source, paths.make(folder), path)
    return Plugin(path, _protocol(folder / Path(_HEADER).name))


def available() -> bool:
    """Whether the plugin was compiled already."""
    return (paths.cache_dir() / _FOLDER / _key() / _NAME).is_file()


def _key() -> str:
    facts = [VERSION, *FILES, platform.system(), platform.machine(), *platform.libc_ver()]
    return f"{VERSION}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def _installed() -> str:
    import importlib.metadata  # slow to load, and needed with workers only

    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        raise WorkerError(
            "llama-cpp-python is not installed; `localspec doctor` says how"
        ) from None


def _compiler() -> list[str]:
    """The command of a C++ compiler.

    Raises:
        WorkerError: there is none.
    """
    if sys.platform == "win32":
        raise WorkerError("other machines cannot be used from Windows; use WSL, or chat --url")
    named = shlex.split(os.environ.get("CXX", ""))
    for command in ([named] if named else []) + [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    hint = {
        "darwin": "run `xcode-select --install`",
        "linux": "install one (Debian, Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`)",
    }.get(sys.platform, "install one")
    raise WorkerError(
        f"the plugin for other machines is compiled here, once, and there is no C++ compiler: "
        f"{hint}, then start again"
    )


def _compile(command: list[str], source: Source, folder: Path, path: Path) -> None:
    """Compile the source to ``path``, whole or not at all.

    Raises:
        WorkerError: the compiler fails, with its first error.
    """
    library = _library_folder()
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        root, made = Path(scratch), Path(scratch) / _NAME
        source.write(root)
        include = [f"-I{root / 'ggml/include'}", f"-I{root / 'ggml/src'}"]
        link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        link += [] if link else [f"-L{library}", "-lggml-base", "-pthread"]
        line = [*command, *_FLAGS, *_DEFINES, *include, *(str(root / unit) for unit in _UNITS)]
        try:
            done = subprocess.run(
                [*line, *link, "-o", str(made)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
            if done.returncode:
                raise WorkerError(f"the RPC plugin does not compile: {_first_error(done.stderr)}")
            (folder / Path(_HEADER).name).write_bytes(source.files[_HEADER])
            made.replace(path)
        except subprocess.TimeoutExpired:
            raise WorkerError(
                f"compiling the RPC plugin took more than {_PATIENCE_S:.0f} s"
            ) from None
        except OSError as error:
            raise WorkerError(f"cannot compile the RPC plugin: {error.strerror or error}") from None


def _first_error(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    wrong = [line for line in lines if "error" in line.lower()]
    return (wrong or lines or ["the compiler gave no reason"])[0].strip()


def _library_folder() -> Path:
    elsewhere = os.environ.get("LLAMA_CPP_LIB_PATH")  # llama-cpp-python's own variable
    if elsewhere:
        return Path(elsewhere)
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None  # its version is known
    assert spec.origin is not None
    return Path(spec.origin).parent / "lib"


def _protocol(header: Path) -> Version:
    """The version in llama.cpp's header.

    Raises:
        WorkerError: the header that is kept beside the plugin is damaged.
    """
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
        major, minor, patch = (
            int(re.findall(rf"RPC_PROTO_{part}_VERSION\s+(\d+)", text)[0])
            for part in ("MAJOR", "MINOR", "PATCH")
        )
    except (OSError, IndexError, ValueError):
        raise WorkerError(f"{header.parent} is damaged; delete it and start again") from None
    return Version(major, minor, patch)


__all__ = ["Plugin", "available", "obtain"]
