"""A draft made of the target itself: fewer bits, or fewer layers (early exit, layer skipping).

Zhang et al. 2024, "Draft & Verify": skip layers of the target; Elhoushi et al. 2024, "LayerSkip":
leave after the first ones. Both use the target's own head and vocabulary, so nothing has to be
trained or found; its acceptance depends on how the target was trained, and is measured.

llama.cpp writes the file in one call that can be neither watched nor stopped, so it is run in a
process of its own: ``python -m localspec.llama.draft_from_target`` with a JSON object on stdin.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.core.errors import Interrupted, LocalspecError, UsageError
from localspec.core.files import paths
from localspec.core.files.checked import require_free, unfinished
from localspec.core.interrupt import Cancelled
from localspec.core.processes import children, crash
from localspec.core.units import size_text
from localspec.llama.library import c_api, errors, start
from localspec.llama.load_file import check_file
from localspec.models.gguf.header import read_header
from localspec.models.gguf.shards import n_bytes, shards

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


def rewrite(job: Rewriting, cancelled: Cancelled) -> None:
    """Write ``job.destination``; an incomplete file is never there.

    Raises:
        Interrupted: ``cancelled`` returned true; nothing is left.
        LocalspecError: llama.cpp cannot write it; with its own words.
    """
    if cancelled():
        raise Interrupted("interrupted; no draft was written")
    partial = unfinished(Path(job.destination))
    asked = asdict(job) | {"destination": str(partial)}
    command, environment = children.command("localspec.llama.draft_from_target")
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


def _watched(process: subprocess.Popen[str], asked: str, cancelled: Cancelled) -> str:
    given: str | None = asked
    while True:
        try:
            return process.communicate(given, timeout=_LOOK_S)[1]
        except subprocess.TimeoutExpired:
            given = None
            if cancelled():
                raise Interrupted("interrupted; no draft was written") from None


def write(job: Rewriting) -> int:
    """In this process: llama.cpp's return code, 0 for success."""
    start()
    params = c_api.llama_model_quantize_default_params()
    params.only_copy = job.bits is None
    params.allow_requantize = True
    if job.bits is not None:
        params.ftype = TYPES[job.bits]
    layers = (ctypes.c_int32 * (len(job.drop) + 1))(*job.drop, -1)
    if job.drop:
        params.prune_layers = ctypes.cast(layers, ctypes.POINTER(ctypes.c_int32))
    source, made = os.fsencode(job.source), os.fsencode(job.destination)
    return int(c_api.llama_model_quantize(source, made, params))


def main() -> None:
    """Main function of the process that rewrites."""
    asked = json.load(sys.stdin)
    if code := write(Rewriting(**asked)):
        sys.exit((errors() or [f"code {code}"])[-1])


def layer_count(model: Path) -> int:
    """Layers of a model.

    Raises:
        LocalspecError: it is not a readable GGUF.
    """
    header = read_header(model)
    count = header.integer(f"{header.architecture}.block_count")
    if not count:
        raise UsageError(f"{model.name} does not say how many layers it has")
    return count


def destination(model: Path, bits: int | None, layers: Sequence[int] | None) -> Path:
    """Default path of such a draft."""
    what = [] if bits is None else [f"q{bits}"]
    if layers is not None:
        what.append("layers-" + "-".join(map(str, layers)))
    folder = paths.make(paths.data_dir() / "drafts")
    return folder / f"{model.stem}.{'.'.join(what)}.gguf"


def make(
    model: Path,
    where: Path,
    *,
    bits: int | None,
    layers: Sequence[int] | None,
    cancelled: Cancelled,
    replace: bool = False,
) -> None:
    """Write the draft; ``replace`` allows an existing file to be overwritten.

    Raises:
        ModelNotFoundError, ModelFileError: there is no such model.
        UsageError: layers that the model does not have, nothing to change, or a destination that
            is a file of the model itself or, without ``replace``, exists already.
        LocalspecError: no room on the disk, or llama.cpp cannot write it.
        Interrupted
    """
    for part in shards(model):
        check_file(part)
    require_free(where, shards(model), replace=replace)
    if bits is None and layers is None:
        raise UsageError("a draft must differ from its target: give --bits, --layers or --search")
    drop: tuple[int, ...] = ()
    if layers is not None:
        count = layer_count(model)
        wrong = [i for i in layers if not 0 <= i < count]
        if wrong or not layers:
            raise UsageError(f"{model.name} has layers 0 to {count - 1}; keep some of these")
        drop = tuple(i for i in range(count) if i not in layers)
    size = n_bytes(model)
    free = shutil.disk_usage(where.parent).free
    if free < size:
        raise LocalspecError(
            f"writing the draft may need {size_text(size)} and {where.parent} has "
            f"{size_text(free)} free; free some space, or name another place with --output"
        )
    try:
        rewrite(Rewriting(str(model), str(where), bits, drop), cancelled)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise LocalspecError(f"the disk of {where.parent} is full") from None
        raise


if __name__ == "__main__":
    main()
