"""Places where nobody but the user could have put, changed or exchanged anything.

What is read in folders of ours starts programs (mcp.json, config.toml) or is native code. So a
place counts only if it and every folder on the way to it, from the root on and through links,
belong to the user, to root, or to the owner of this very code, and nobody else may write to them:
no other user can then exchange anything between the check and the opening either. Measurements
are read under fewer conditions (`localspec.core.files.measured`).
"""

from __future__ import annotations

import errno
import functools
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localspec.core.errors import LocalspecError
from localspec.core.files import checked, private

LARGEST_JSON = 16 << 20
"""Bytes of JSON of ours at most."""
_USERS = Path("/proc/self/uid_map")
_UNKNOWN_USER = Path("/proc/sys/kernel/overflowuid")
_MOST_LINKS = 40
"""Links on a way at most, as in Linux."""
_AUTHOR = Path(__file__).stat().st_uid
"""Who owns this file, which a process that gives up rights may not find any more."""


def content(path: Path, most: int) -> bytes:
    """The first ``most`` bytes of a file of ours.

    Raises:
        OSError: it cannot be read, is no regular file, or somebody else could have written it.
        ValueError: no file can have this name.
    """
    try:
        path.stat()  # a file that is not there has nothing wrong about it
        require(path.parent)
        require(path)
    except LocalspecError as error:
        raise PermissionError(errno.EPERM, str(error), str(path)) from None
    return checked.content(path, most)


def parsed(path: Path) -> Any:
    """The JSON of a small file of ours.

    Raises:
        OSError: see `content`.
        ValueError: it is not JSON.
    """
    return json.loads(content(path, LARGEST_JSON))


def require(path: Path, *, missing: bool = False) -> None:
    """Refuse a file or folder that somebody else could write to or exchange.

    With ``missing`` it need not be there; then nobody else may be able to make it.

    Raises:
        LocalspecError: it, or a folder or link on the way, belongs to another user or is open to
            others.
        OSError: it cannot be looked at.
    """
    for place, last in _way(path):
        try:
            found = place.lstat()
        except FileNotFoundError:
            if not missing:
                raise
            require(place.parent)
            return
        # In a folder such as /tmp, nobody can exchange what belongs to others.
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not last
        if not stat.S_ISLNK(found.st_mode) and not sticky:
            _require_shut(place, found)
        _require_owner(place, found)


def is_closed(folder: Path, *, missing: bool = False) -> bool:
    """Whether a folder is there and nobody else could put anything in it; ``missing`` as in
    `require`.
    """
    try:
        require(folder, missing=missing)
    except (OSError, LocalspecError):
        return False
    return True


def require_file(place: Path, found: os.stat_result) -> None:
    """Refuse a file, by what the system says of it, that somebody else could have written.

    Raises:
        LocalspecError: it is no regular file, belongs to another user or is open to others.
    """
    if not stat.S_ISREG(found.st_mode):
        raise LocalspecError(f"{place} is no file of ours; delete it and start again")
    require_own(place, found)


def require_own(place: Path, found: os.stat_result) -> None:
    """Refuse a file or folder, by what the system says of it, that somebody else could write to.

    Raises:
        LocalspecError: it belongs to another user or is open to others.
    """
    _require_shut(place, found)
    _require_owner(place, found)


def _way(path: Path) -> Iterator[tuple[Path, bool]]:
    """Every place from the root to a path, links and what they lead to; whether it is the last."""
    whole = path.absolute()  # ".." in it is followed, as a link may lead elsewhere
    done, ahead, links = Path(whole.anchor), [*reversed(whole.parts[1:])], 0
    yield done, not ahead
    while ahead:
        part = ahead.pop()
        if part == "..":
            done = done.parent
            continue
        here = done / part
        if here.is_symlink():
            yield here, False
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            to = here.readlink()
            if to.is_absolute():
                done = Path(to.anchor)
            ahead.extend(reversed(to.parts[1:] if to.is_absolute() else to.parts))
            continue
        done = here
        yield done, not ahead


def _require_owner(place: Path, found: os.stat_result) -> None:
    if hasattr(os, "geteuid") and found.st_uid not in _owners():
        raise LocalspecError(
            f"{place} belongs to another user, who could exchange what is in it, and nothing in it "
            "is used; use a folder of your own (LOCALSPEC_HOME)"
        )


def _require_shut(place: Path, found: os.stat_result) -> None:
    if private.open_to_others(place, found):
        shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # as /tmp has to be
        remedy = "use a folder of your own" if shared else f"forbid it: chmod go-w '{place}'"
        raise LocalspecError(f"others may write to {place}, and nothing in it is used; {remedy}")


@functools.cache
def _root() -> int:
    """Root's number. In a container that has no root of its own (bwrap, Flatpak), the files of
    all users that it does not know have one number, root's among them.
    """
    try:
        known = [line.split() for line in _USERS.read_text(encoding="ascii").splitlines()]
        if any(int(first) <= 0 < int(first) + int(count) for first, _, count in known):
            return 0
        return int(_UNKNOWN_USER.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _owners() -> frozenset[int]:
    """Root, this user, and whoever owned this file when it was read: their code runs here in any
    case.
    """
    return frozenset({_root(), os.geteuid(), _AUTHOR})
