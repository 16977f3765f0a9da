"""The only room that touches llama_cpp: models, contexts, batches, devices."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.files.native import require_closed


def _require_trusted_library() -> None:
    """Refuse a folder in llama-cpp-python's own variable that somebody else could write to. Without
    it, the library lies among the installed packages, whose code runs in any case.
    """
    elsewhere = os.environ.get("LLAMA_CPP_LIB_PATH")
    if elsewhere and Path(elsewhere).is_dir():
        require_closed(Path(elsewhere))


_require_trusted_library()
