"""Model files that cannot be loaded: seen before llama.cpp opens them, or explained by its log."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core.errors import (
    ModelFileError,
    ModelNotFoundError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from localspec.llama import library

_GGUF = b"GGUF"
_MEMORY = re.compile(
    r"out of memory|(failed|unable|cannot) (to )?allocate|insufficient memory|bad_alloc|cudaMalloc",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"unknown model architecture: '([^']*)'")
_REASON = re.compile(r"error loading model(?: \w+)?: (.*)")
_CUT = re.compile(
    r"not within the file bounds|corrupted or incomplete|failed to read|unexpected", re.IGNORECASE
)


def check_file(path: Path) -> None:
    """Refuse what cannot be a GGUF before llama.cpp, which may abort on it, sees it.

    Raises:
        ModelNotFoundError: nothing there.
        ModelFileError: a directory, empty, unreadable, or not GGUF.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a directory; give a .gguf file in it")
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ModelFileError(f"{path} is a pipe or a device; give a .gguf file")
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"no model file at {path}; `localspec models` lists the downloaded models"
        ) from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from None
    if not head:
        raise ModelFileError(f"{path} is empty; fetch it again")
    if head[:4] != _GGUF:
        raise ModelFileError(
            f"{path} is not a GGUF file; localspec loads GGUF only (convert it with llama.cpp's "
            "convert_hf_to_gguf.py, or pull a GGUF repository)"
        )
    if len(head) < 8:
        raise ModelFileError(f"{path} ends in the middle of its header; fetch it again")


def load_error(path: Path, lines: list[str]) -> ModelFileError | OutOfMemoryError:
    """The error that the lines of llama.cpp's log mean."""
    text = "\n".join(lines)
    if _MEMORY.search(text):
        return OutOfMemoryError(
            f"{path.name} ({path.stat().st_size / 1e9:.2f} GB) does not fit into memory; choose a "
            "smaller model, or fewer layers on the GPU with --gpu-layers"
        )
    if unknown := _UNKNOWN.search(text):
        return UnsupportedModelError(
            f"{path.name} has the architecture {unknown[1]!r}, which this build of llama.cpp "
            f"(llama-cpp-python {library.version()}) does not know"
        )
    if _CUT.search(text):
        return ModelFileError(f"{path.name} is cut short or damaged; fetch it again")
    found = _REASON.findall(text)
    reason = found[0] if found else (lines[0] if lines else "llama.cpp gave no reason")
    return ModelFileError(f"llama.cpp cannot load {path.name}: {reason}")
