"""The C++ compiler of this machine, and the installed llama.cpp that its output is linked to."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling import own_build
from localspec.core.errors import LocalspecError
from localspec.core.files import defects
from localspec.core.processes import commands

_ELSEWHERE = {
    "memory ran out: close other programs": re.compile(
        r"\bKilled\b|signal 9\b|out of memory|cannot allocate memory|memory exhausted|bad_alloc",
        re.IGNORECASE,
    ),
    "make room on that disk, or set TMPDIR to a folder on another": re.compile(
        r"No space left|quota exceeded", re.IGNORECASE
    ),
    "processes or open files ran out: close other programs": re.compile(
        r"temporarily unavailable|Too many open files", re.IGNORECASE
    ),
    "a file could not be read: look at that disk or network folder": re.compile(
        r"Input/output error|Stale file handle", re.IGNORECASE
    ),
}
"""What to do where the machine lacked something, and what compilers and linkers say then."""
_CRASHED = re.compile(
    r"internal compiler error|signal terminated program|frontend command failed"
    r"|Segmentation fault|unable to execute command"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a compiler failed."""

    why: str
    """Its own words, and what to do where it is known."""
    lacking: bool = False
    """Whether memory, disk space or the like was lacking: another time it may do."""
    crashed: bool = False
    """Whether the compiler itself failed."""


def command(environ: Mapping[str, str] = os.environ) -> list[str] | None:
    """The command of a C++ compiler; None if there is none, or ``CXX`` is no command."""
    try:
        named = shlex.split(environ.get("CXX", ""))
    except ValueError:
        return None
    for line in ([named] if named else []) + [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(line[0]):
            return line
    return None


def how_to_install() -> str:
    """What gives this machine a C++ compiler."""
    try:
        shlex.split(os.environ.get("CXX", ""))
    except ValueError:
        return f"CXX is {os.environ['CXX']}, whose quotes do not close: mend or unset it"
    return {
        "darwin": "run `xcode-select --install`",
        "linux": "install one (Debian, Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`)",
    }.get(sys.platform, "install one")


def run(line: list[str], patience_s: float, what: str) -> Failure | None:
    """Run a compiler that makes ``what``: why it failed; None if it did not.

    Raises:
        LocalspecError: it takes too long, or cannot be started.
    """
    try:
        # Why it failed is read from its messages.
        done = commands.run(line, patience_s, env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired:
        raise LocalspecError(f"compiling {what} takes longer than {patience_s:.0f} s") from None
    except OSError as error:
        raise LocalspecError(f"{line[0]}: {defects.why(error)}") from None
    return failure(done.returncode, done.stderr) if done.returncode else None


def _first_error(stderr: bytes) -> str:
    """The line of a compiler's output that says why it failed."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    wrong = [line for line in lines if "error" in line.lower()]
    return (wrong or lines or ["the compiler gave no reason"])[0].strip()


def failure(status: int, stderr: bytes) -> Failure:
    """Why a compiler ended with a status other than 0; its messages must be in English."""
    number = -status if status < 0 else status - 128  # a shell between adds 128
    if number not in {known.value for known in signal.Signals}:
        number = 0
    text = stderr.decode("utf-8", "replace")
    ended = f"the compiler was ended by signal {number}" if number else ""
    why = _first_error(stderr) if text.strip() or not ended else ended
    for remedy, pattern in _ELSEWHERE.items():
        if pattern.search(text) or pattern.search(ended):
            return Failure(f"{why}; {remedy}", lacking=True)
    crashed = number > 0 or _CRASHED.search(text) is not None
    return Failure(f"{why}; the compiler itself failed" if crashed else why, crashed=crashed)


def installed() -> str | None:
    """The version of the installed llama-cpp-python; None if there is none."""
    import importlib.metadata  # slow to load

    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return None


def linked_names() -> list[str]:
    """The names under which llama.cpp's library is there; what is linked to one build looks for
    the name in it, and does not load with another build that has it not.
    """
    folder = library_folder()
    return [] if folder is None else sorted(path.name for path in folder.glob("libggml-base*"))


def library_folder() -> Path | None:
    """The folder of llama.cpp's libraries; None if they are not installed."""
    own_build.use()
    elsewhere = os.environ.get(own_build.VARIABLE)
    if elsewhere and Path(elsewhere).is_dir():
        return Path(elsewhere)
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    return folder if folder.is_dir() else folder.parent
