"""The threads that llama.cpp computes with on the processor, for other work between two passes.

After a pass they spin for about a millisecond, so that giving them work costs less than the work.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

from llama_cpp._ggml import libggml

from localspec.core.kernel import Team


def team(threads: int) -> Team | None:
    """The threads that llama.cpp's passes on the processor leave spinning; None if it computes on
    one, or by other means than OpenMP.
    """
    parallel = _parallel()
    return Team(parallel, threads) if parallel is not None and threads > 1 else None


@functools.cache
def _parallel() -> int | None:
    """Address of the function that runs a parallel region, in the OpenMP library that llama.cpp
    computes with: another one would start threads of its own beside those.
    """
    folder = Path(str(libggml._name)).parent  # noqa: SLF001 - ctypes has no other name for it
    for path in sorted(folder.glob("libggml-cpu*")):
        try:
            library = ctypes.CDLL(str(path), mode=getattr(os, "RTLD_NOLOAD", 0))
            return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):  # not the one that is loaded, or no OpenMP
            continue
    return None


__all__ = ["team"]
