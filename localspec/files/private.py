"""Files and folders that belong to the user alone, and texts without their secrets."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from localspec.errors import LocalspecError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SECRETS = (
    (re.compile(r"hf_[A-Za-z0-9]{8,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"(?i)\b(token|api[_-]?key|password|secret|signature)=[^\s&'\"]+"), r"\1=***"),
    (re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"), "***"),
)
"""Tokens of the Hub, headers and parameters that carry a key, passwords in addresses."""


def opener(path: str, flags: int) -> int:
    """An opener for `open`: only the owner can read the file, from its first byte on; also one that
    existed before.
    """
    handle = os.open(path, flags, 0o600)
    if hasattr(os, "fchmod") and os.fstat(handle).st_mode & 0o077:
        os.fchmod(handle, 0o600)
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
    if found.st_mode & _OTHERS:
        raise LocalspecError(
            f"others may write to {folder}; make it yours alone: chmod 700 '{folder}'"
        )


def without_secrets(text: str) -> str:
    """A text for a log or a message, its tokens and passwords replaced by asterisks."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


__all__ = ["opener", "require_own", "without_secrets"]
