"""A draft made of the target itself: fewer bits, or fewer layers (early exit, layer skipping).

Zhang et al. 2024, "Draft & Verify": skip layers of the target; Elhoushi et al. 2024, "LayerSkip":
leave after the first ones. Both use the target's own head and vocabulary, so nothing has to be
trained or found; its acceptance depends on how the target was trained, and is measured.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths
from localspec.core.files.new_file import require_free
from localspec.core.units import size_text
from localspec.llama.file_errors import check_file
from localspec.llama.requantize import Rewriting, rewrite
from localspec.models.gguf.header import read_header
from localspec.models.gguf.shards import shards


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
