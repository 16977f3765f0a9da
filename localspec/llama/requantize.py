"""Rewrites a model with llama.cpp: other types of weights, fewer layers.

llama.cpp does this in one call that can be neither watched nor stopped, so it is run in a process
of its own: ``python -m localspec.llama.requantize`` with a JSON object on stdin.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.core.errors import Interrupted, LocalspecError
from localspec.core.files.new_file import unfinished
from localspec.core.processes import children, crash

TYPES = {2: 10, 3: 11, 4: 2}
"""Bits a weight, roughly, to llama.cpp's file types: Q2_K, Q3_K_S, Q4_0."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A model to write."""

    source: str
    destination: str
    bits: int | None
    """One of `TYPES`; None copies the weights as they are."""
    drop: tuple[int, ...]
    """Layers to leave out."""


def rewrite(job: Rewriting, cancelled: Callable[[], bool]) -> None:
    """Write ``job.destination``; an incomplete file is never there.

    Raises:
        Interrupted: ``cancelled`` returned true; nothing is left.
        LocalspecError: llama.cpp cannot write it; with its own words.
    """
    if cancelled():
        raise Interrupted("interrupted; no draft was written")
    partial = unfinished(Path(job.destination))
    asked = asdict(job) | {"destination": str(partial)}
    command, environment = children.command("localspec.llama.requantize")
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to act on
        text=True,
        errors="replace",
    )
    try:
        output = _watched(process, json.dumps(asked), cancelled)
        if process.returncode:
            reason = (output.strip().splitlines() or ["it ended without a word"])[-1]
            if process.returncode < 0:
                reason = crash.explain(-process.returncode, "", output)
            raise LocalspecError(f"llama.cpp cannot write {job.destination}: {reason}")
        partial.replace(job.destination)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        partial.unlink(missing_ok=True)


def _watched(process: subprocess.Popen[str], asked: str, cancelled: Callable[[], bool]) -> str:
    given: str | None = asked
    while True:
        try:
            _, output = process.communicate(given, timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            given = None
            if cancelled():
                raise Interrupted("interrupted; no draft was written") from None
        else:
            return output


def write(source: str, destination: str, bits: int | None, drop: Sequence[int]) -> int:
    """In this process: llama.cpp's return code, 0 for success."""
    from localspec.llama.library import c_api, start

    start()
    params = c_api.llama_model_quantize_default_params()
    params.only_copy = bits is None
    params.allow_requantize = True
    if bits is not None:
        params.ftype = TYPES[bits]
    layers = (ctypes.c_int32 * (len(drop) + 1))(*drop, -1)
    if drop:
        params.prune_layers = ctypes.cast(layers, ctypes.POINTER(ctypes.c_int32))
    code: int = c_api.llama_model_quantize(source.encode(), destination.encode(), params)
    return code


def main() -> None:
    """Main function of the process that rewrites."""
    from localspec.llama.library import errors_since

    asked = json.load(sys.stdin)
    code = write(asked["source"], asked["destination"], asked["bits"], asked["drop"])
    if code:
        sys.exit((errors_since() or [f"code {code}"])[-1])


if __name__ == "__main__":
    main()
