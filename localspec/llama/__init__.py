"""The only room that touches llama_cpp: models, contexts, batches, devices."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.compiling import own_build
from localspec.core.errors import LocalspecError
from localspec.core.files.native import closed_libraries


def _require_trusted_library() -> None:
    """Refuse a folder in llama-cpp-python's own variable in which somebody else could write; what
    was checked is what is loaded, whatever a link on the way leads to later. Without the variable,
    the library lies among the installed packages, whose code runs in any case.
    """
    own_build.use()
    elsewhere = os.environ.get("LLAMA_CPP_LIB_PATH")
    if elsewhere:
        if not Path(elsewhere).is_dir():  # somebody else might make it between here and the import
            raise LocalspecError(
                f"LLAMA_CPP_LIB_PATH={elsewhere} is no folder: correct the variable, or unset it"
            )
        os.environ["LLAMA_CPP_LIB_PATH"] = str(closed_libraries(Path(elsewhere)))


_require_trusted_library()
