"""The RPC plugin of llama.cpp: compiled once from the source of the installed build.

The wheel of llama-cpp-python has no RPC. Its two files compile alone, in some seconds, to a library
that llama.cpp loads as it loads its other back ends. It is stored in the cache folder, under a key
of the source and of the machine.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import cxx, llama_source
from localspec.compiling.llama_source import VERSION, Source
from localspec.core.errors import LocalspecError, WorkerError
from localspec.core.files import checked, native, paths, whole_file
from localspec.llama.rpc.handshake import Version

FILES = llama_source.listed(Path(__file__).with_name("plugin.sha256"))
"""SHA-256 of each file that the plugin is made of, by its path in llama.cpp."""


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
        WorkerError: there is no compiler or no source, it does not compile, or somebody else could
            have written it; says what to do.
    """
    installed = _installed()
    if installed != VERSION:
        raise WorkerError(
            f"other machines need llama-cpp-python {VERSION}, whose RPC source is known, and "
            f"{installed} is installed; install localspec again"
        )
    path = _place()
    if given is not None or not native.is_stored(path):
        command = _compiler()
        way_out = "give a folder with it with --source to `localspec worker`"
        wanted = llama_source.Wanted("the plugin for other machines", FILES, way_out)
        try:
            source = llama_source.find(wanted, given, offline=offline)
        except LocalspecError as error:
            raise WorkerError(str(error)) from None
        if on_start is not None:
            on_start()
        _store(command, source, paths.make(path.parent))
    return Plugin(trusted(path), _protocol(path.with_name(Path(_HEADER).name)))


def trusted(path: Path) -> Path:
    """The place of the plugin, for llama.cpp to load it from.

    Raises:
        WorkerError: it is not what was compiled, or somebody else could have written it.
    """
    try:
        return native.trusted(path)
    except LocalspecError as error:
        raise WorkerError(str(error)) from None


def available() -> bool:
    """Whether the plugin was compiled already."""
    return native.is_stored(_place())


def _place() -> Path:
    """Its path, in a folder that is named by what it is made of: a version has one set of files."""
    facts = [VERSION, *FILES, platform.system(), platform.machine(), *platform.libc_ver()]
    facts += cxx.linked_names()
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return paths.cache_dir() / _FOLDER / f"{VERSION}-{digest}" / _NAME


def _installed() -> str:
    found = cxx.installed()
    if found is None:
        raise WorkerError("llama-cpp-python is not installed; `localspec doctor` says how")
    return found


def _compiler() -> list[str]:
    """The command of a C++ compiler.

    Raises:
        WorkerError: there is none.
    """
    if sys.platform == "win32":
        raise WorkerError("other machines cannot be used from Windows; use WSL, or chat --url")
    command = cxx.command()
    if command is None:
        raise WorkerError(
            f"the plugin for other machines is compiled here, once, and there is no C++ compiler: "
            f"{cxx.how_to_install()}, then start again"
        )
    return command


def _store(command: list[str], source: Source, folder: Path) -> None:
    """Compile the source into a folder, whole or not at all.

    Raises:
        WorkerError: the compiler fails, or it cannot be stored; with the reason.
    """
    try:
        whole_file.replace(folder / Path(_HEADER).name, [source.files[_HEADER]])
        native.store(folder, _NAME, lambda fresh: _compile(command, source, fresh))
    except OSError as error:
        raise WorkerError(f"cannot store the RPC plugin: {error.strerror or error}") from None
    except LocalspecError as error:
        raise WorkerError(str(error)) from None


def _compile(command: list[str], source: Source, made: Path) -> None:
    root = made.parent / "source"
    source.write(root)
    include = [f"-I{root / 'ggml/include'}", f"-I{root / 'ggml/src'}"]
    link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    link += [] if link else [f"-L{cxx.library_folder()}", "-lggml-base", "-pthread"]
    line = [*command, *_FLAGS, *_DEFINES, *include, *(str(root / unit) for unit in _UNITS)]
    failed = cxx.run([*line, *link, "-o", str(made)], _PATIENCE_S, "the RPC plugin")
    if failed is not None:
        raise LocalspecError(f"the RPC plugin does not compile: {failed.why}")


def _protocol(header: Path) -> Version:
    """The version in llama.cpp's header.

    Raises:
        WorkerError: the header that is kept beside the plugin is damaged.
    """
    try:
        text = checked.content(header, 1 << 20).decode("utf-8", "replace")
        major, minor, patch = (
            int(re.findall(rf"RPC_PROTO_{part}_VERSION\s+(\d+)", text)[0])
            for part in ("MAJOR", "MINOR", "PATCH")
        )
    except (OSError, IndexError, ValueError):
        raise WorkerError(f"{header.parent} is damaged; delete it and start again") from None
    return Version(major, minor, patch)
