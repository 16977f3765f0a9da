"""Servers of this user that run now: a small file for each in the state folder.

A chat finds there the server that has its model loaded already. The files hold no key. Their names
begin with the place of the server, see `localspec.core.processes.place`; those of other places are
left alone, but for old ones: a server that runs writes its own anew each day.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.core import codec
from localspec.core.errors import LocalspecError
from localspec.core.files import closed, paths, whole_file
from localspec.core.processes import place, starts

REFRESH_S = 86400.0
"""Seconds after which a server that runs is announced again."""


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
    file = _folder() / f"{place.here()}{server.pid}.json"
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
    """The servers whose process runs in this place, the newest first; files of ended ones are
    removed.
    """
    if not closed.is_closed(_folder()):  # what is there may be true, and is another's to remove
        return []
    here, found = place.here(), []
    for written, file in _files():
        if file.name.startswith(here):
            server = _read(file)
            if server is not None:
                found.append(server)
        elif place.is_forsaken(written):
            withdraw(file)
    return sorted(found, key=lambda server: server.began, reverse=True)


def _files() -> Iterator[tuple[float, Path]]:
    """When each file that is there was written, and the file."""
    for file in _folder().glob("*.json"):
        try:
            written = file.stat().st_mtime
        except OSError:  # it has just been removed
            continue
        yield written, file


def _read(file: Path) -> RunningServer | None:
    """The server of a file of this place, if it runs; otherwise the file is removed, unless a newer
    version has written it.
    """
    try:
        data = closed.parsed(file)
    except OSError:
        return None
    except (ValueError, RecursionError):  # no JSON
        withdraw(file)
        return None
    try:
        server = codec.decode(RunningServer, data)
    except codec.CodecError:
        return None
    if starts.runs(server.pid, server.began):
        return server
    withdraw(file)  # no such process, or another one has its number
    return None
