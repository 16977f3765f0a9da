"""The speed of this machine with weights, measured once and saved.

It is measured in a process of its own, since llama.cpp may crash and a graphics driver would stay
loaded. ``python -m localspec.loading.machine_speed measure FOLDER`` prints it as JSON. The file is
`speed.json` in the cache folder; another library, processor, number of cores or driver makes it
invalid.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.core.errors import LocalspecError
from localspec.core.files import measured, paths
from localspec.core.files.checked import keeps_holes
from localspec.core.processes import host, neighbours
from localspec.core.processes.children import ask, ask_async
from localspec.loading import library, own_kernels, soundness
from localspec.models.memory.speed import MachineSpeed

_MODULE = "localspec.loading.machine_speed"
_INVALID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_FORMAT = 3
SPEED_FILE = "speed.json"
_ROOM = 600_000_000
"""Bytes of free memory for a measurement: models of 245 MB, and a copy in the order of the kernels.
With less the system would read pages again and again.
"""
_MOST_RUNS = 5
"""Measurements of a machine that is busy; after these, only while it is quiet."""


def machine_speed() -> MachineSpeed | None:
    """The speed of this machine; measured, which takes two seconds, where it is not known yet.

    None where it cannot be measured: without llama.cpp (`doctor` says why), in little memory, or
    without room for a small file. Where other programs disturbed it, the next calls measure again.
    Blocks.
    """
    known = _Record.read()
    if known is not None and known.holds():
        return known.speed
    try:
        with _place() as folder:
            found = ask(_MODULE, "measure", folder)
    except (LocalspecError, OSError):
        return known.speed if known is not None else None
    return _merged(found, known)


async def machine_speed_async(*, again: bool = False) -> MachineSpeed | None:
    """The speed of this machine, measured without blocking the event loop; see `machine_speed`.

    ``again``: measure it now, whatever is known. A quiet measurement replaces what is known.
    """
    known = await asyncio.to_thread(_Record.read)
    if known is not None and not again and await asyncio.to_thread(known.holds):
        return known.speed
    try:
        with _place() as folder:
            found = await ask_async(_MODULE, "measure", folder)
    except (LocalspecError, OSError):
        return known.speed if known is not None else None
    return _merged(found, known)


def saved() -> MachineSpeed | None:
    """The speed that was measured earlier; None where there is none for this machine as it is."""
    known = _Record.read()
    return known.speed if known is not None else None


@dataclass(frozen=True, slots=True)
class _Record:
    """The file with the measurements so far."""

    speed: MachineSpeed
    runs: int

    def holds(self) -> bool:
        """Whether a measurement now would tell no more. Blocks for a moment where that depends
        on whether other programs are busy.
        """
        return not self.speed.disturbed or (self.runs >= _MOST_RUNS and neighbours.busy_now())

    @classmethod
    def read(cls) -> _Record | None:
        """The file; None where there is no valid one for this machine as it is."""
        try:
            data = measured.parsed(_path())
            if data["machine"] != _machine():
                return None
            return cls(_parsed(data["speed"]), int(data["runs"]))
        except (OSError, LocalspecError, *_INVALID):
            return None

    def write(self) -> None:
        """Save it; where that fails, the next command measures again."""
        speed = dataclasses.asdict(self.speed)
        data = {"machine": _machine(), "runs": self.runs, "speed": speed}
        try:
            paths.make(paths.cache_dir())
            measured.write(_path(), data)
        except (OSError, LocalspecError):
            return


def _place() -> tempfile.TemporaryDirectory[str]:
    """A folder for the models of a measurement. It is ours and not the child's, which may be
    killed.

    Raises:
        OSError, LocalspecError: it cannot be made, or there is no memory for such models.
    """
    if host.memory().available < _ROOM:
        raise LocalspecError("too little memory is free")
    return tempfile.TemporaryDirectory(
        dir=paths.make(paths.cache_dir()), prefix="speed-", ignore_cleanup_errors=True
    )


def _merged(found: Any, known: _Record | None) -> MachineSpeed | None:
    """Save what was measured; other programs only add time, so the least of each width counts."""
    try:
        speed = _parsed(found)
    except _INVALID:
        return known.speed if known is not None else None
    if known is not None and speed.disturbed:
        speed = known.speed.least(speed)  # quiet where the known one is
    _Record(speed, known.runs + 1 if known is not None else 1).write()
    return speed


def _path() -> Path:
    return paths.cache_dir() / SPEED_FILE


def _machine() -> list[Any]:
    """Values that identify the machine and build which were measured."""
    facts = [_FORMAT, library.identity(), own_kernels.state(), host.processors()]
    return [*facts, *library.graphics()]


def _parsed(data: Mapping[str, Any]) -> MachineSpeed:
    def curves(of: Mapping[str, Any]) -> dict[str, dict[int, float]]:
        found = {str(k): {int(n): float(s) for n, s in c.items()} for k, c in of.items()}
        if not all(s > 0 for c in found.values() for s in c.values()):
            raise ValueError("not a time")
        return found

    host = curves(data["host"])
    if not all(1 in curve for curve in host.values()) or "Q4_K" not in host:
        raise ValueError("no time of a pass over one token")
    return MachineSpeed(host, curves(data["gpu"]), bool(data["disturbed"]))


def measure(folder: Path) -> MachineSpeed:
    """Measure now, in this process, with models in ``folder``.

    Raises:
        OSError: no file can be written there.
        LocalspecError: there are no sparse files, or llama.cpp cannot be used.
    """
    if not keeps_holes(folder):
        raise LocalspecError(f"the disk of {folder} has no sparse files")
    from localspec.llama import library
    from localspec.llama.devices import backend
    from localspec.llama.weight_speed import TYPES, curve

    library.log_to(paths.make(paths.state_dir()) / "llama.log")
    proof = soundness.recorded()
    extra = proof is None or proof.extra_buffers
    on_gpu = backend() != "cpu"
    own = bool(own_kernels.engage(own_kernels.without_making(), make=False).unit)
    others = neighbours.Neighbours()
    host = {k: curve(folder, k, gpu_layers=0, extra_buffers=extra, own_kernels=own) for k in TYPES}
    gpu = {k: curve(folder, k, gpu_layers=99, extra_buffers=extra) for k in TYPES if on_gpu}
    return MachineSpeed(host, gpu, disturbed=others.busy)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "measure":
        sys.exit("usage: machine_speed measure FOLDER")
    try:
        sys.stdout.write(json.dumps(dataclasses.asdict(measure(Path(sys.argv[2])))))
    except (LocalspecError, OSError) as error:
        sys.exit(str(error))
