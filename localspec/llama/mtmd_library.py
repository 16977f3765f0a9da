"""llama.cpp's libmtmd, which encodes pictures: compiled once, from the installed build's source.

The wheel of llama-cpp-python is built without it, since most chats have no
pictures. It is compiled when a projector is first loaded, and stored as the RPC plugin is.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localspec.compiling import cxx, llama_source
from localspec.compiling.llama_source import VERSION, Source, Wanted
from localspec.core.errors import LocalspecError
from localspec.core.files import native, paths
from localspec.core.processes import host
from localspec.core.safe_text import safe_line

NAME = "libmtmd.so"
_FOLDER = "libmtmd"
FILES = llama_source.listed(Path(__file__).with_name("libmtmd.sha256"))
"""SHA-256 of each file that it is made of, by its path in llama.cpp."""
_PATIENCE_S = 1800.0
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
"""What computes is in ggml; here a picture is resized, and minutes of compiling are saved."""
_DEFINES = ("-DLLAMA_SHARED", "-DLLAMA_BUILD", "-DGGML_SHARED", "-DGGML_BACKEND_SHARED")
_INCLUDED = ("include", "ggml/include", "tools/mtmd")

OnUnit = Callable[[float], None]
"""Is told the part of the source that is compiled, from 0 to 1; raises to stop."""


def obtain(*, offline: bool = False, on_unit: OnUnit = lambda _: None) -> Path:
    """Its place; compiled now if it is not there, with ``on_unit`` told how far that is.

    Raises:
        LocalspecError: there is no compiler or no source, or it does not compile; says what to do.
        Exception: what ``on_unit`` raised, which ends the compiling.
    """
    folder = place()
    if not native.is_stored(folder / NAME):
        command, libraries = _compiler()
        given = os.environ.get(llama_source.VARIABLE)
        wanted = Wanted(
            "the library for pictures",
            FILES,
            f"name a folder or archive with it in {llama_source.VARIABLE}",
        )
        source = llama_source.find(wanted, Path(given) if given else None, offline=offline)
        on_unit(0.0)
        build = _Build(command, libraries, source, on_unit)
        try:
            native.store(paths.make(folder), NAME, build.make, waiting=lambda: on_unit(0.0))
        except OSError as error:
            raise LocalspecError(
                f"the library for pictures cannot be stored: {error.strerror or error}"
            ) from None
    return native.trusted(folder / NAME)


def place() -> Path:
    """Its folder: named by all that it is made of."""
    facts = [VERSION, sorted(FILES.items()), _FLAGS, _DEFINES]
    facts += [platform.system(), platform.machine(), *platform.libc_ver(), *cxx.linked_names()]
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return paths.cache_dir() / _FOLDER / f"{VERSION}-{digest}"


def _compiler() -> tuple[list[str], Path]:
    """The command of the compiler, and the folder of llama.cpp's libraries.

    Raises:
        LocalspecError: there is none, or another llama.cpp is installed.
    """
    if sys.platform == "win32":
        raise LocalspecError("pictures cannot be read on Windows yet; use WSL")
    found, libraries = cxx.installed(), cxx.library_folder()
    if found != VERSION or libraries is None:
        raise LocalspecError(
            f"pictures need llama-cpp-python {VERSION}, whose source is known, and "
            f"{found or 'none'} is installed; install localspec again"
        )
    command = cxx.command()
    if command is None:
        raise LocalspecError(
            "the library for pictures is compiled here, once, and there is no C++ compiler: "
            f"{cxx.how_to_install()}, then start again"
        )
    return command, libraries


class _Build:
    """Compiles the units, as many at a time as there are processors, and links them."""

    def __init__(
        self, command: list[str], libraries: Path, source: Source, on_unit: OnUnit
    ) -> None:
        self._command = command
        self._libraries = libraries
        self._source = source
        self._on_unit = on_unit
        self._stopped = threading.Event()

    def make(self, made: Path) -> None:
        """Write the library to ``made``.

        Raises:
            LocalspecError: the compiler fails, with its first error.
        """
        root = made.parent / "llama.cpp"
        self._source.write(root)
        units = sorted(
            (root / name for name in self._source.files if name.endswith(".cpp")),
            key=lambda unit: -unit.stat().st_size,  # the longest first: none is waited for alone
        )
        include = [f"-I{root / folder}" for folder in _INCLUDED]
        objects = [unit.with_suffix(".o") for unit in units]

        def compile_unit(unit: Path, object_file: Path) -> None:
            if not self._stopped.is_set():
                line = [*_FLAGS, *_DEFINES, *include, "-c", str(unit)]
                self._run([*line, "-o", str(object_file)])

        pool = ThreadPoolExecutor(host.processors())
        try:
            jobs = [pool.submit(compile_unit, *both) for both in zip(units, objects, strict=True)]
            for done, job in enumerate(jobs, 1):
                while not job.done():
                    self._on_unit(sum(one.done() for one in jobs) / (1 + len(jobs)))
                    self._stopped.wait(0.2)
                job.result()
                self._on_unit(done / (1 + len(jobs)))
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
        link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        link += [] if link else [f"-L{self._libraries}", "-lllama", "-lggml", "-lggml-base"]
        self._run(["-shared", *map(str, objects), *link, "-pthread", "-o", str(made)])

    def _run(self, arguments: list[str]) -> None:
        failed = cxx.run([*self._command, *arguments], _PATIENCE_S, "the library for pictures")
        if failed is not None:
            raise LocalspecError(f"the library for pictures does not compile: {failed.why}")


def main() -> int:
    """Compile it now, with progress: for tests and for machines that will have no network."""

    def tell(part: float) -> None:
        sys.stderr.write(f"\rlibrary for pictures: {part:.0%}")
        sys.stderr.flush()

    try:
        path = obtain(on_unit=tell)
    except LocalspecError as error:
        sys.stderr.write(f"{safe_line(str(error))}\n")
        return error.exit_code
    sys.stdout.write(f"{safe_line(str(path))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
