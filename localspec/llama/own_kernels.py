"""Our own kernels in llama.cpp: registered once for the process, before its first model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import native
from localspec.kernels.library import KernelLibrary
from localspec.llama import library


@dataclass(slots=True)
class _Process:
    """What is so for the whole process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: bool = False
    """Whether a model was loaded: llama.cpp then knows its types of buffers for good."""
    kernels: KernelLibrary | None = None
    libraries: Path | None = None
    unit: str = ""
    digest: str = ""
    """SHA-256 of their library: the compiler is no part of its folder's name."""


_process = _Process()


def register(path: Path, libraries: Path, unit: str) -> str:
    """Let llama.cpp compute by a proved library; the instruction set in use, which is that of the
    first call.

    Raises:
        LocalspecError: the library cannot be used, or the process has loaded a model without it.
    """
    library.start()
    with _process.lock:
        if _process.kernels is None:
            if _process.loaded:
                raise LocalspecError("this process has loaded a model without them before")
            kernels = KernelLibrary(path, libraries)
            _process.unit = kernels.register(unit)
            _process.kernels, _process.libraries = kernels, libraries
            _process.digest = native.recorded(path)
        return _process.unit


@contextlib.contextmanager
def loading(*, own: bool) -> Iterator[None]:
    """Load a model meanwhile in this thread, with our kernels or without. Other threads may load
    and compute as they like.
    """
    with _process.lock:  # `register` sees the load, or the load what is registered
        _process.loaded = True
        kernels = _process.kernels
    if kernels is None:
        yield
        return
    kernels.offer(on=own)
    try:
        yield
    finally:
        kernels.offer(on=True)


def unit() -> str:
    """The instruction set in use; "" where llama.cpp computes alone."""
    return _process.unit


def registered() -> tuple[str, ...]:
    """The arguments of `register` that another process computes likewise with, as texts; none where
    llama.cpp computes alone.
    """
    if _process.kernels is None:
        return ()
    return str(_process.kernels.path), str(_process.libraries), _process.unit


def build() -> list[str]:
    """All that identifies what computes in this process: llama.cpp's build, and our library."""
    found = [library.version(), library.commit(), library.system_info()]
    if _process.kernels is not None:
        found += [_process.kernels.path.parent.name, _process.unit, _process.digest]
    return found
