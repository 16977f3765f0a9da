"""Asks once whether llama.cpp is to be built with Vulkan for a GPU that would lie idle."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import llama_backend
import llama_time
from bootstrap_steps import Failure, say
from llama_backend import Machine

FILE = "gpu-backend"
"""Name of the answer's file in the cache of wheels."""
_ANSWERS = ("vulkan", "cpu")


def backend_for(machine: Machine, environ: Mapping[str, str], cache: Path) -> str:
    """The requested backend, else the best for this machine, after asking where a GPU needs Vulkan.

    The answer is remembered; LOCALSPEC_BACKEND overrides it. Nobody is asked without a terminal;
    where what Vulkan needs is missing, the question waits until it is installed.
    """
    requested = environ.get("LOCALSPEC_BACKEND")
    backend = llama_backend.choose_backend(requested, machine)
    idle = None if requested else llama_backend.unused_gpu(backend, machine)
    if idle is None:
        return backend
    if (known := _answer(cache)) is not None:
        return known
    try:
        llama_backend.require_vulkan(environ)
    except Failure:
        return backend
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return backend
    chosen = "vulkan" if _yes(machine) else "cpu"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / FILE).write_text(f"{chosen}\n", encoding="utf-8")
    except OSError as error:
        say(f"the answer cannot be remembered ({error.strerror}); you will be asked again")
    return chosen


def _answer(cache: Path) -> str | None:
    try:
        text = (cache / FILE).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return text if text in _ANSWERS else None


def _yes(machine: Machine) -> bool:
    names = machine.gpus.splitlines()[:1] or [f"a GPU of {' and '.join(machine.other_gpus)}"]
    with tempfile.TemporaryDirectory() as scratch:
        time = llama_time.in_words(llama_time.expected("vulkan", machine, Path(scratch)))
    say(
        f"{names[0]} can be used with Vulkan: llama.cpp is then built for it, in "
        f"{time}. LOCALSPEC_BACKEND=cpu or =vulkan changes it later"
    )
    try:
        return input("localspec: build for the GPU? [Y/n] ").strip().lower() in {"", "y", "yes"}
    except EOFError:
        return False
