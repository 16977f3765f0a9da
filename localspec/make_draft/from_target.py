"""A draft made of the target itself: fewer bits, or fewer layers (early exit, layer skipping).

Zhang et al. 2024, "Draft & Verify": skip layers of the target; Elhoushi et al. 2024, "LayerSkip":
leave after the first ones. Both use the target's own head and vocabulary, so nothing has to be
trained or found; its acceptance depends on how the target was trained, and is measured.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.lab import Lab
from localspec.bench.speedup import Answered, answer
from localspec.bench.workloads import WORKLOADS
from localspec.config import paths
from localspec.core.logits import Sampling
from localspec.core.speed_formula import best_fixed
from localspec.errors import LocalspecError, UsageError
from localspec.files.new_file import require_free
from localspec.llama.file_errors import check_file
from localspec.llama.requantize import Rewriting, rewrite
from localspec.loading.options import Options
from localspec.models.gguf.header import read_header
from localspec.models.gguf.shards import shards
from localspec.models.memory.report import size_text
from localspec.runtime import Runtime

_K = 4
_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of layers as a draft."""

    layers: tuple[int, ...]
    """Layers that are kept."""
    acceptance: tuple[float, ...]
    """Share of accepted tokens by position in the draft."""
    cost: float
    """Seconds for a drafted token."""
    gain: float
    """Speed by plain decoding's, at the best draft length; 1 where nothing is gained."""


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
    cancelled: Callable[[], bool],
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
    check_file(model)
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
    size, free = model.stat().st_size, shutil.disk_usage(where.parent).free
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


def candidates(count: int) -> list[tuple[int, ...]]:
    """Early exits after a quarter, half and three quarters, and every other layer with both ends.

    The last layer is always among one of them: targets that were not trained to leave early need
    it, since it writes for the head.
    """
    exits = {max(1, round(count * share)) for share in (0.25, 0.5, 0.75)}
    found = [tuple(range(n)) for n in sorted(exits) if n < count]
    if count >= 4:
        found.append(tuple(sorted({*range(0, count, 2), count - 1})))
        found.append((*range(count // 2), count - 1))
    return found


def search(
    model: Path, folder: Path, on_tried: Callable[[Tried], None], cancelled: Callable[[], bool]
) -> list[Tried]:
    """Measure the candidates on a few prompts at temperature 0, the best one first.

    Raises:
        LocalspecError, Interrupted
    """
    with Runtime.open(Options(model=str(model), draft="none", drafter=("suffix",))) as runtime:
        costs = Lab(runtime).measure_costs()
    curve = costs.curve() if costs is not None else {1: 1.0}
    found = []
    for layers in candidates(layer_count(model)):
        where = folder / "candidate.gguf"
        make(model, where, bits=None, layers=layers, cancelled=cancelled)
        options = Options(model=str(model), draft=str(where), drafter=("model",), draft_max=_K)
        with Runtime.open(options, cancelled=cancelled) as runtime:
            replies = [
                answer(runtime, w.prompts[0], Sampling(temperature=0), 1, _TOKENS, draft=True)
                for w in WORKLOADS
            ]
        where.unlink()
        tried = _tried(layers, replies, curve)
        on_tried(tried)
        found.append(tried)
    return sorted(found, key=lambda tried: -tried.gain)


def _tried(layers: tuple[int, ...], replies: Sequence[Answered], curve: dict[int, float]) -> Tried:
    rounds = [r for a in replies for r in a.rounds if r.drafted]
    positions = []
    for i in range(max((r.verified for r in rounds), default=0)):
        judged = [r for r in rounds if r.verified > i]
        positions.append(sum(r.accepted > i for r in judged) / len(judged))
    seconds = sum(a.reply.stats.draft_seconds for a in replies)
    cost = seconds / max(1, sum(r.drafted for r in rounds))
    gain, _ = best_fixed(positions, curve, cost)
    return Tried(layers, tuple(positions), cost, gain)
