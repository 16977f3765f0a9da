"""ggml's code for the processor where a build has it once for each level of instructions.

Usually `libggml` is linked to one `libggml-cpu`. A build with GGML_BACKEND_DL and
GGML_CPU_ALL_VARIANTS, which serves every processor of a kind, has a `libggml-cpu-NAME` for each
level instead. llama.cpp loads the best that the processor has, once it is told to.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import native

_ANOTHER = "GGML_BACKEND_PATH"
"""The variable by which ggml loads any library besides, wherever it is."""
_PATTERN = "libggml-cpu-*.so"


def variants(folder: Path) -> list[Path]:
    """The libraries for levels of a processor in llama.cpp's folder; none in a usual build."""
    return sorted(folder.glob(_PATTERN))


def choose(libggml: ctypes.CDLL, folder: Path) -> None:
    """Let llama.cpp load what its folder has for this processor, unless it has done so.

    Without the folder it would also search the working directory and that of the interpreter.

    Raises:
        LocalspecError: others could have written to the folder, or nothing there suits.
    """
    if not variants(folder):
        return
    count = libggml.ggml_backend_reg_count
    count.restype, count.argtypes = ctypes.c_size_t, []
    if count():
        return
    folder = native.closed_libraries(folder)
    os.environ.pop(_ANOTHER, None)  # a second library, which nobody has checked
    load = libggml.ggml_backend_load_all_from_path
    load.restype, load.argtypes = None, [ctypes.c_char_p]
    load(os.fsencode(folder))
    if not count():
        raise LocalspecError(f"no library in {folder} suits this processor; build llama.cpp here")


def share(folder: Path) -> Path:
    """The library that llama.cpp has loaded; what is loaded from now on may use its functions.

    Raises:
        LocalspecError: none of them is loaded.
    """
    for path in variants(folder):
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        except OSError:  # not the one
            continue
        return path
    raise LocalspecError(f"llama.cpp has loaded no library for the processor from {folder}")
