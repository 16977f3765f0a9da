"""Servers of this user that run now: a small file for each in the state folder.

A chat finds there the server that has its model loaded already. The files hold no key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from localspec.core import codec
from localspec.core.errors import LocalspecError
from localspec.core.files import closed, paths, whole_file
from localspec.core.processes import starts


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
    """When that process began, by `starts.began`: another one may get its number."""


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
        if server is not None and starts.runs(server.pid, server.began):
            found.append(server)
        else:  # no such process, or another one has its number
            withdraw(file)
    return found


def _read(file: Path) -> RunningServer | None:
    try:
        return codec.decode(RunningServer, closed.parsed(file))
    except (OSError, ValueError, RecursionError):
        return None
