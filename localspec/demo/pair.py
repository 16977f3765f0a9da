"""The embedded pair grown to the cost of a large one, in files that exist only for a race."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.files import paths
from localspec.core.files.checked import keeps_holes
from localspec.core.units import size
from localspec.models.gguf.growth import SmallModel
from localspec.models.memory.machine import Memory
from localspec.models.memory.speed import MachineSpeed

PLAIN_SPEED = 15.0
"""Tokens per second of plain decoding to aim at: slow enough to watch."""
DRAFT_SHARE = 14
"""Times as large as its draft the target is, as 14 billion weights with a draft of one billion or
0.6 are."""
_LEAST, _MOST = 60_000_000, 6_000_000_000
"""Bytes of the target."""
_MEMORY_SHARE = 3
"""Bytes of free memory for each byte of the target: the file's pages, a copy in the order of the
processor's kernels, and room for other programs."""
_ON_DISK = 256_000_000
"""Free bytes that are required on the disk; the weights that are not zero take a quarter of it."""
_PREFIX = "pair-"


@dataclass(frozen=True, slots=True)
class GrownPair:
    """A grown pair on disk."""

    folder: Path
    n_bytes: int
    """Bytes of both files, holes included."""

    @property
    def target(self) -> Path:
        """The target's file."""
        return self.folder / "target.gguf"

    @property
    def draft(self) -> Path:
        """The draft model's file."""
        return self.folder / "draft.gguf"

    def remove(self) -> None:
        """Delete the files. An engine that has loaded them goes on. May be called twice."""
        shutil.rmtree(self.folder, ignore_errors=True)


def target_bytes(machine: MachineSpeed | None, memory: Memory) -> int:
    """Bytes of a target that decodes at about `PLAIN_SPEED` here, bounded by the free memory.

    Raises:
        OutOfMemoryError: there is no memory for the smallest one.
    """
    most = min(_MOST, memory.host_usable // _MEMORY_SHARE)
    if machine is not None and machine.gpu:
        most = min(most, memory.gpu_usable // 2)
    if most < _LEAST:
        free = size(memory.host_usable)
        raise OutOfMemoryError(
            f"the race needs {size(_LEAST * _MEMORY_SHARE)} of free memory, and there are {free}; "
            "close other programs"
        )
    if machine is None:
        return min(most, 500_000_000)
    wanted = 1 / (PLAIN_SPEED * machine.curve("Q4_0", on_gpu=1.0)[1])
    return max(_LEAST, min(most, int(wanted)))


class Growth:
    """Grows a pair in a thread; its files can be removed at any time from another one."""

    def __init__(self, n_bytes: int) -> None:
        """``n_bytes`` are those of the target."""
        self._n_bytes = n_bytes
        self._lock = threading.Lock()
        self._pair: GrownPair | None = None
        self._unwanted = False

    def run(self) -> GrownPair:
        """Grow the pair.

        Raises:
            LocalspecError: as `grow`.
        """
        pair = grow(self._n_bytes)
        with self._lock:
            self._pair = pair
            if self._unwanted:
                pair.remove()
        return pair

    def remove(self) -> None:
        """Delete the files, now or as soon as they are made. May be called twice."""
        with self._lock:
            self._unwanted = True
            if self._pair is not None:
                self._pair.remove()


def grow(n_bytes: int) -> GrownPair:
    """Grow the embedded pair to a target of about ``n_bytes``; the caller removes it.

    What an earlier process left behind is deleted first.

    Raises:
        LocalspecError: the disk is full, cannot be written, or has no sparse files; nothing is
            left behind then.
    """
    top = paths.make(paths.cache_dir() / "race")
    _remove_left(top)
    _require_room(top)
    folder = Path(tempfile.mkdtemp(dir=top, prefix=f"{_PREFIX}{os.getpid()}-"))
    made = GrownPair(folder, 0)
    try:
        total = _grown("target", n_bytes, made.target)
        total += _grown("draft", n_bytes // DRAFT_SHARE, made.draft)
    except BaseException as error:
        made.remove()
        if isinstance(error, OSError):
            raise LocalspecError(f"cannot write to {top}: {error.strerror}") from None
        raise
    return GrownPair(folder, total)


def _grown(name: str, n_bytes: int, path: Path) -> int:
    small = SmallModel(paths.DEMO_DIR / f"{name}.gguf")
    shape = small.shape_for(n_bytes)
    small.grow(shape, path)
    return small.n_bytes(shape)


def _require_room(top: Path) -> None:
    """Check that the disk has room and sparse files.

    Raises:
        LocalspecError: it has not, or cannot be written.
    """
    try:
        free = shutil.disk_usage(top).free
        if free < _ON_DISK:
            raise LocalspecError(
                f"the race needs {size(_ON_DISK)} in {top}, and {size(free)} are free; delete "
                "something, or set LOCALSPEC_HOME to a folder on another disk"
            )
        sparse = keeps_holes(top)
    except OSError as error:
        raise LocalspecError(f"cannot write to {top}: {error.strerror}") from None
    if not sparse:
        raise LocalspecError(
            f"the disk of {top} has no sparse files, so the race would fill it; set LOCALSPEC_HOME "
            "to a folder on another disk"
        )


def _remove_left(top: Path) -> None:
    """Delete the files of processes that were killed."""
    with contextlib.suppress(OSError):
        for folder in top.glob(f"{_PREFIX}*"):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if not owner.isdecimal() or not psutil.pid_exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)
