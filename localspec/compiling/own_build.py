"""llama.cpp built for this machine beside an installation, which it is used in place of.

llama-cpp-python comes from pip, often built for any processor and for no device. ``localspec
build-llama`` builds another into the cache, by the scripts that a checkout is made ready with, and
notes it here for this version of llama-cpp-python, this processor and C library. Whether it
computes right is proved as for any build (`localspec.loading.soundness`).

How scripts/localspec built the one of a checkout is recorded beside it.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling.llama_source import VERSION
from localspec.core import codec
from localspec.core.files import closed, paths

VARIABLE = "LLAMA_CPP_LIB_PATH"
"""llama-cpp-python's own variable for the folder of its libraries; inherited by child processes."""
CHECKOUT = "llama-build.json"
"""In the environment of a checkout: how scripts/localspec built what is there."""
_FILE = "own-llama.json"
VECTOR_FLAG = re.compile("sse|ssse|avx|fma|f16c|bmi|amx")
"""Flags that a build depends on, as in scripts/llama_backend.py."""
_FACTS = ("model name", "flags", "Features", "CPU part", "CPU implementer", "isa")


def use() -> None:
    """Have llama.cpp loaded from the noted build, if that is for this machine; before it is.

    A user's own `VARIABLE` is left as it is. ``localspec.llama`` refuses a folder that others may
    write to; a note that they could have written is not followed, see `passed_over`.
    """
    if VARIABLE not in os.environ and (folder := noted()) is not None:
        os.environ[VARIABLE] = os.path.realpath(folder)


def noted() -> Path | None:
    """The folder of the build for this machine; None if there is none, or in a checkout, which has
    the build that its own start made.
    """
    if (found := _noted()) is None:
        return None
    folder, machine = found
    return folder if machine == _machine() and any(folder.glob("libllama*")) else None


def _noted() -> tuple[Path, object] | None:
    """The folder of the noted build, and what it is for."""
    if (Path(sys.prefix) / CHECKOUT).is_file():
        return None
    try:
        note = closed.parsed(_place())
        return Path(note["folder"]), note["for"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def passed_over() -> str:
    """That a noted build is not used, and what to do, as a sentence; "" where there is none, it is
    used, or the user's own `VARIABLE` goes first.
    """
    if VARIABLE in os.environ or (Path(sys.prefix) / CHECKOUT).is_file():
        return ""
    try:
        closed.parsed(_place())
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and error.errno == errno.EPERM:
            return f"the llama.cpp of `localspec build-llama` is not used: {error.strerror}"
    if _noted() is None or noted() is not None:
        return ""
    return (
        "the llama.cpp of `localspec build-llama` is gone, or for another llama-cpp-python, "
        "processor or C library than there is here, and the installed one is used; give the "
        "command again, or with --remove"
    )


def used() -> bool:
    """Whether this process uses it."""
    folder = noted()
    return folder is not None and os.environ.get(VARIABLE) == os.path.realpath(folder)


def note(folder: Path) -> None:
    """Use that build from now on.

    Raises:
        OSError: this cannot be noted.
    """
    from localspec.core.files import whole_file

    paths.make_parent(_place())
    whole_file.replace(_place(), [json.dumps({"folder": str(folder), "for": _machine()}).encode()])


def forget() -> bool:
    """Use the build among the packages again; False if it was used already."""
    try:
        _place().unlink()
    except FileNotFoundError:
        return False
    return True


def _place() -> Path:
    return paths.cache_dir() / _FILE


def _machine() -> list[str]:
    return [VERSION, *platform.libc_ver(), *map(_without_the_kernels_words, processor())]


def _without_the_kernels_words(line: str) -> str:
    """Kernels add words of their own to the flags; an update of one is no new processor."""
    name, _, words = line.partition(":")
    if name.strip() != "flags":
        return line
    return " ".join(sorted(filter(VECTOR_FLAG.match, words.split())))


def processor() -> list[str]:
    """The processor's name and instruction sets, as far as a file tells."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            first = file.read(8192).split("\n\n")[0]  # one core's part of what can be megabytes
    except OSError:
        return [platform.system(), platform.machine(), platform.version()]
    lines = [line for line in first.splitlines() if line.startswith(_FACTS)]
    return [platform.machine(), *lines]


@dataclass(frozen=True, slots=True)
class Build:
    """How scripts/localspec built the library: the step of its ladder, and earlier failures."""

    rung: str
    failed: dict[str, str]
    """Earlier steps and their failures."""


def rebuild_command() -> str:
    """The command that builds llama.cpp anew, down to a build that computes right here."""
    if build() is not None:
        return "delete .venv and start scripts/localspec"
    return "localspec build-llama"


def build() -> Build | None:
    """How scripts/localspec built the library; None where pip did."""
    try:
        facts = json.loads((Path(sys.prefix) / CHECKOUT).read_text(encoding="utf-8"))
        return codec.decode(Build, facts)
    except (OSError, ValueError, TypeError):
        return None
