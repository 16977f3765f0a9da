"""Compiles the kernels: once for each instruction set that the compiler knows, in a minute or less.

The library belongs to the Python environment, or to the user's cache where the environment cannot
be written. Its folder is named by what it is made of: our source, llama.cpp's headers, the
machine. The compiler is not a part of that: what was compiled and proved stays good.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import cxx
from localspec.compiling.llama_source import VERSION, Source
from localspec.core.errors import LocalspecError
from localspec.core.files import checked, closed, native, paths, private, whole_file
from localspec.kernels.compiler import FLAGS, SOURCE, Compiler
from localspec.kernels.instruction_sets import FILES, headers, of_machine

NAME = "liblocalspec-kernels.so"
_NOTES = "build.json"
_SUFFIXES = frozenset({".cpp", ".h"})


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled library."""

    path: Path
    units: tuple[str, ...]
    """Names of the instruction sets in it."""
    left_out: dict[str, str]
    """Names of others, with the compiler's reason."""
    compiler: str


def files_of(source: Path) -> Iterator[Path]:
    """The files that are compiled, in order."""
    yield from sorted(path for path in source.rglob("*") if path.suffix in _SUFFIXES)


@functools.cache
def key() -> str:
    """Digest of all that the library is made of, but for the compiler."""
    return _key(*platform.libc_ver(), *cxx.linked_names())


def shipped_folder(libraries: Path) -> Path:
    """Where a wheel of llama.cpp for all processors has the library, beside llama.cpp's own: its C
    library may be an older one than this machine's.
    """
    return libraries / "localspec" / f"kernels-{_key()}"


def _key(*linked: str) -> str:
    facts: list[object] = [VERSION, sorted(FILES.items()), FLAGS]
    facts += [str(unit) for unit in of_machine()]
    facts += [platform.system(), platform.machine(), *linked]
    digest = hashlib.sha256(repr(facts).encode())
    for path in files_of(SOURCE):
        digest.update(f"{path.relative_to(SOURCE)}\n".encode() + path.read_bytes())
    return f"{VERSION}-{digest.hexdigest()[:16]}"


def places() -> list[Path]:
    """Where the library may be: the environment's own folder, unless others may write to it, and
    the cache.
    """
    found = [paths.cache_dir() / "own-kernels" / key()]
    shared = Path(sys.prefix) / "lib" / "localspec" / f"kernels-{key()}"
    if sys.prefix != sys.base_prefix and closed.is_closed(shared, missing=True):
        found.insert(0, shared)
    return found


def stored() -> Built | None:
    """The library that was compiled; None if there is none. `native` says whether it is safe."""
    libraries = cxx.library_folder()
    shipped = [shipped_folder(libraries)] if libraries is not None else []
    for folder in [*places(), *filter(closed.is_closed, shipped)]:
        if native.is_stored(folder / NAME) and (found := _noted(folder)) is not None:
            return found
    return None


def _noted(folder: Path) -> Built | None:
    try:
        facts = json.loads(checked.content(folder / _NOTES, 1 << 20))
        units = tuple(map(str, facts["units"]))
        return Built(folder / NAME, units, dict(facts["left_out"]), str(facts["compiler"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def impossible() -> str:
    """Why the kernels cannot be compiled or used here; "" if they can."""
    installed = cxx.installed()
    if installed is None:
        return "llama-cpp-python is not installed"
    if installed != VERSION:
        return f"made for llama-cpp-python {VERSION}, installed is {installed}"
    if not of_machine():
        return f"there are none for {platform.machine() or 'this processor'}"
    if sys.platform == "win32":
        return "there are none for Windows; use WSL"
    return ""


def obtain(
    *,
    offline: bool = False,
    on_start: Callable[[], None] | None = None,
    on_unit: Callable[[str], None] | None = None,
) -> Built:
    """The library; compiled now, after ``on_start``, if it is not there.

    Raises:
        RefusedError: the compiler refuses it; says why.
        LocalspecError: it cannot be compiled; says why, and what to do.
    """
    why = impossible()
    if why:
        raise LocalspecError(why)
    known = stored()
    if known is not None:
        return known
    command, libraries = cxx.command(), cxx.library_folder()
    if command is None:
        raise LocalspecError(f"there is no C++ compiler: {cxx.how_to_install()}")
    assert libraries is not None  # its version is known
    included = headers(offline=True) if offline else None
    if on_start is not None:
        on_start()
    included = included or headers()
    return store(Compiler(tuple(command), libraries, of_machine()), included, places(), on_unit)


def store(
    compiler: Compiler,
    included: Source,
    folders: Iterable[Path],
    on_unit: Callable[[str], None] | None = None,
) -> Built:
    """Compile into the first of some folders that can be written, whole or not at all.

    Raises:
        LocalspecError: it does not compile, or none of them can be written.
    """
    failed = ""
    for folder in folders:
        shared = folder.is_relative_to(sys.prefix)
        try:
            private.make(folder, 0o755 if shared else 0o700)
            return _store(compiler, included, folder, on_unit, shared=shared)
        except OSError as error:
            failed = f"{folder}: {error.strerror or error}"
    raise LocalspecError(f"the kernels cannot be stored: {failed}")


def _store(
    compiler: Compiler,
    included: Source,
    folder: Path,
    on_unit: Callable[[str], None] | None,
    *,
    shared: bool,
) -> Built:
    noted: list[Built] = []

    def make(fresh: Path) -> None:
        units, left_out = compiler.compile(included, fresh, on_unit)
        noted.append(Built(folder / NAME, units, left_out, compiler.version()))
        facts = {"units": units, "left_out": left_out, "compiler": noted[0].compiler}
        whole_file.replace(folder / _NOTES, [json.dumps(facts).encode()])
        if shared:
            (folder / _NOTES).chmod(0o644)

    native.store(folder, NAME, make, shared=shared)
    made = noted[0] if noted else _noted(folder)  # else another process has made them meanwhile
    if made is None:
        raise LocalspecError(f"{folder} was damaged while it was written: delete it, start again")
    return made
