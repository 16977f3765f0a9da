"""Parses the Hub's listings of files, which are not trusted.

Two forms exist: ``siblings`` of the description of a repository (rfilename, size, blobId, and
lfs with sha256), and the pages of its tree (path, size, oid, and lfs with oid).
"""

from __future__ import annotations

import re
from typing import Any

from localspec.core.safe_text import is_safe_name, safe_line
from localspec.models.catalog.file_names import RepoFile
from localspec.models.hub.client import NotAHubError

_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST_NAME = 200
"""Bytes of a part of a path; file systems allow 255, and temporary names are a little longer."""
_OTHER_ON_WINDOWS = re.compile(
    r":|[. ]\Z"
    r"|\A(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\.|\Z)",
    re.IGNORECASE,
)
"""Parts of a path that name something else on Windows: a drive or a stream, a device, or what the
name is without the dots and spaces at its end.
https://learn.microsoft.com/windows/win32/fileio/naming-a-file
"""
_MOST_LICENCE = 80


def files(listing: object) -> list[RepoFile]:
    """The files of a listing; a file without a size has no hash either.

    Raises:
        NotAHubError: the listing has an unknown form.
    """
    if not isinstance(listing, list):
        raise NotAHubError("it lists no files")
    return [_file(item) for item in listing if not _is_folder(item)]


def _is_folder(item: object) -> bool:
    return isinstance(item, dict) and item.get("type", "file") != "file"


def _file(item: object) -> RepoFile:
    facts = _object(item)
    lfs = _object(facts.get("lfs") or {})
    path = facts.get("path", facts.get("rfilename"))
    oid = facts.get("oid", facts.get("blobId")) or ""
    sha256 = lfs.get("sha256", lfs.get("oid"))
    size = lfs.get("size", facts.get("size"))
    if not isinstance(path, str) or not isinstance(oid, str):
        raise NotAHubError("it lists files without names")
    if not (sha256 is None or isinstance(sha256, str)):
        raise NotAHubError("it lists hashes in another form")
    if size is None:
        return RepoFile(path, 0)
    if type(size) is not int or not 0 <= size < 1 << 60:
        raise NotAHubError("it lists sizes in another form")
    return RepoFile(path, size, sha256, oid)


def _object(item: object) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise NotAHubError("it lists files in another form")
    return item


def valid_entries(entries: list[RepoFile]) -> list[RepoFile]:
    """The files whose path and hash are safe as names on disk and on a terminal."""
    return [entry for entry in entries if is_valid(entry.path) and _ETAG.fullmatch(entry.etag)]


def is_valid(path: str) -> bool:
    """Whether a path is safe as a name on disk and on a terminal."""
    if "\\" in path or not is_safe_name(path):
        return False
    return all(
        part not in {"", ".", ".."}
        and len(part.encode()) <= _MOST_NAME
        and not _OTHER_ON_WINDOWS.search(part)
        for part in path.split("/")
    )


def licence(card: object) -> str | None:
    """The licence that a repository's card names, made safe for a terminal."""
    if not isinstance(card, dict):
        return None
    found = card.get("license_name") or card.get("license")
    if isinstance(found, list):
        found = ", ".join(str(one) for one in found)
    if not isinstance(found, str):
        return None
    return safe_line(found)[:_MOST_LICENCE] or None
