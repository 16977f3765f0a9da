"""The compiled kernel for rows of logits: optional, with numpy as reference and fallback.

`rows.c` does in one pass over a row what `localspec.core.logits` and `Noise.draw` do in some thirty
numpy calls. It gives the same tokens; probabilities may differ in the last bit, by the exp and log
of libm. `localspec.core.kernel.build` compiles it into the environment, and checks it against the
reference; without it nothing changes but the time of a round.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.core.kernel.row_kernel import MOST, Cut, RowKernel, Team

SOURCE = Path(__file__).with_name("rows.c")
VARIABLE = "LOCALSPEC_ROW_KERNEL"
"""``off`` in this environment variable keeps to numpy."""


def library() -> Path:
    """The file of the compiled kernel, which need not exist; its name changes with the source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return Path(sys.prefix) / "lib" / "localspec" / f"rows-{digest}.so"


@functools.cache
def loaded() -> RowKernel | None:
    """The kernel of this environment; None if it was not compiled, is not to be trusted, or is
    switched off.
    """
    if os.environ.get(VARIABLE) == "off":
        return None
    try:
        return RowKernel(library())
    except LocalspecError:
        return None


def refusal() -> str:
    """Why a kernel that is there whole is not used; "" where it is, or where there is none."""
    if not native.is_stored(library()):
        return ""
    try:
        native.trusted(library())
    except LocalspecError as error:
        return str(error)
    return ""


__all__ = ["MOST", "SOURCE", "Cut", "RowKernel", "Team", "library", "loaded", "refusal"]
