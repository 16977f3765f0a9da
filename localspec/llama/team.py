"""The threads that llama.cpp computes with on the processor, for other work between two passes.

After a pass they spin for about a millisecond, so that giving them work costs less than the work.
"""

from __future__ import annotations

import ctypes
import functools
import os

from localspec.core.kernel import Team
from localspec.llama.library import folder

_SOFT = 1
"""`omp_pause_soft`: threads end, settings stay."""


def team(threads: int) -> Team | None:
    """The threads that llama.cpp's passes on the processor leave spinning; None if it computes on
    one, or by other means than OpenMP.
    """
    parallel = _function("GOMP_parallel")
    return Team(parallel, threads) if parallel is not None and threads > 1 else None


def end_threads() -> None:
    """End the threads that wait for this thread's next pass, which starts them again.

    OpenMP keeps a team for every thread that ever computed. Where the teams of a process are
    together more threads than there are processors, GNU's OpenMP no longer waits actively in any
    of them, and passes take half as long again: an idle runtime would slow the one beside it.
    """
    pause = _function("omp_pause_resource_all")
    if pause is not None:
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(pause)(_SOFT)


@functools.cache
def _function(name: str) -> int | None:
    """Address of a function of the OpenMP library that llama.cpp computes with: another one would
    start threads of its own beside those.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    for path in sorted(folder().glob("libggml-cpu*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
            return ctypes.cast(library[name], ctypes.c_void_p).value
        except (OSError, AttributeError):  # not the one that is loaded, or no OpenMP
            continue
    return None
