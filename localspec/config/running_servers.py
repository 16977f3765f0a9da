"""Servers of this user that run now: a small file for each in the state folder.

A chat finds there the server that has its model loaded already. The files hold no key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from localspec.core import codec
from localspec.core.errors import LocalspecError
from localspec.core.files import closed, paths, whole_file

_SAME_S = 5.0
"""Seconds by which the start of one process may differ between two looks, where it is told by a
clock that is corrected.
"""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server."""

    address: str
    """An address such as ``http://127.0.0.1:8080`` or ``unix:/run/user/1000/localspec.sock``."""
    model: str
    """The name that it was started with, the same in every folder."""
    draft: str | None
    target: str
    """Path of the target file."""
    key: bool
    """Whether it requires a key."""
    pid: int
    began: float
    """When that process began, by `began`: another one may get its number."""


def _folder() -> Path:
    return paths.state_dir() / "servers"


def announce(server: RunningServer) -> Path | None:
    """Write the file of a server; None where it cannot be written: chats then do not find it."""
    file = _folder() / f"{server.pid}.json"
    try:
        paths.make(file.parent)
        whole_file.replace(file, [json.dumps(dataclasses.asdict(server)).encode()])
    except (OSError, LocalspecError):
        return None
    return file


def withdraw(file: Path | None) -> None:
    """Remove the file of a server that ends."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


def running() -> list[RunningServer]:
    """The servers whose process still runs, the newest first; files of others are removed."""
    if not closed.is_closed(_folder()):  # what is there may be true, and is another's to remove
        return []
    try:
        files = sorted(_folder().glob("*.json"), key=lambda f: f.stat().st_mtime, reverse=True)
    except OSError:
        return []
    found = []
    for file in files:
        server = _read(file)
        if server is not None and abs(began(server.pid) - server.began) < _SAME_S:
            found.append(server)
        else:  # no such process, or another one has its number
            withdraw(file)
    return found


def _read(file: Path) -> RunningServer | None:
    try:
        return codec.decode(RunningServer, closed.parsed(file))
    except (OSError, ValueError, RecursionError):
        return None


def began(pid: int) -> float:
    """When a process began, in seconds: since the machine started where that is known, for clocks
    are corrected; no number where there is no such process.
    """
    if Path("/proc/self/stat").is_file():
        try:  # proc(5): the 22nd field, and the second one may have spaces
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
            return int(fields.split()[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return math.nan
    import psutil  # here: mostly no server runs

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError, OverflowError):
        return math.nan
