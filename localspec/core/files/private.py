"""Files and folders that belong to the user alone, and texts without their secrets."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import checked

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SECRETS = (
    (re.compile(r"hf_[A-Za-z0-9]{8,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)\b((?:\w*[_-])?(?:token|sig|signature|secret|password)|api[_-]?key)=[^\s&'\"]+"
        ),
        r"\1=***",
    ),
    (
        re.compile(r"(?<=://)(?:[^\s/?#@:\[]{0,256}:(?!\d{1,5}[/?#])\S{0,512}|[^\s/?#]+)(?=@)"),
        "***",
    ),
)
"""Tokens of the Hub, headers and parameters that carry a key, passwords in addresses."""

_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*://)?([^/?#]*)(.*)", re.DOTALL)
"""Scheme, host with what is before it, and the rest."""


def opener(path: str, flags: int) -> int:
    """An opener for `open`: only the owner can read the file, from its first byte on; also one that
    existed before. What is no regular file is refused: a pipe would wait for its other end.
    """
    handle = os.open(path, flags | os.O_NONBLOCK, 0o600)
    try:
        checked.require_regular(handle, path)
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    except BaseException:
        os.close(handle)
        raise
    return handle


def require_own(folder: Path) -> None:
    """Refuse a folder in which another user could put, exchange or read files of ours.

    Raises:
        LocalspecError: others may write to it, or it belongs to another user.
        OSError: it cannot be looked at.
    """
    if not hasattr(os, "geteuid"):  # Windows has other rights than these
        return
    found, user = folder.stat(), os.geteuid()
    if user != 0 and found.st_uid not in {0, user}:
        raise LocalspecError(
            f"{folder} belongs to another user; set LOCALSPEC_HOME to a folder of your own"
        )
    if open_to_others(folder, found):
        raise LocalspecError(
            f"others may write to {folder}; make it yours alone: chmod 700 '{folder}'"
        )


def make(folder: Path, mode: int = 0o700) -> Path:
    """Make a folder of ours. Every folder above it that is missing has the same ``mode``, whatever
    the umask allows: who may write to one of them could exchange what is below it.

    Raises:
        LocalspecError: others may write to it, or it belongs to another user.
        OSError: it cannot be made.
    """
    missing, place = list[Path](), folder
    while not place.exists():
        missing.append(place)
        place = place.parent
    for one in reversed(missing):
        one.mkdir(mode, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    require_own(folder)
    return folder


def open_to_others(place: str | Path, found: os.stat_result) -> bool:
    """Whether somebody else may write to a file or folder.

    Where users have a group of their own (Debian, Fedora), folders are writable for that group.
    """
    if not hasattr(os, "geteuid") or not found.st_mode & _OTHERS:
        return False
    return bool(found.st_mode & stat.S_IWOTH) or not _group_of_one(place, found.st_gid)


def _group_of_one(place: str | Path, group: int) -> bool:
    """Whether a group has no members but this user, and no list gives others more rights."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    if user.pw_gid != group or found.gr_name != user.pw_name or set(found.gr_mem) - {user.pw_name}:
        return False
    # A group's list does not name those who have it as their own.
    if any(u.pw_gid == group and u.pw_uid != user.pw_uid for u in pwd.getpwall()):
        return False
    return not _has_list(place)


def _has_list(place: str | Path) -> bool:
    """Whether a list (acl(5)) says who has which rights."""
    if not hasattr(os, "listxattr"):
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(place)
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # a file system without such lists, as FUSE often is
            raise
        return False


def without_user(address: str) -> str:
    """An address without user name, password and keys, whatever characters these have.

    In "http://a:1/b@c" the path may have an @, or a password of a's a slash: then nothing of what
    is before the @ is told. A user name alone has no slash.
    """
    found = _ADDRESS.match(address)
    assert found is not None  # it matches any text
    scheme, host, path = found.groups("")
    if "@" in path and (":" in host or not scheme or not host):
        host, path = "***", path[path.rindex("@") :]
    return without_secrets(scheme + host.rpartition("@")[2] + path)


def without_secrets(text: str) -> str:
    """A text for a log or a message, its tokens and passwords replaced by asterisks."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
