"""Reads the header of a GGUF file on the Hub without fetching the file."""

from __future__ import annotations

from localspec.core.errors import ModelFileError
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.gguf.header import Header, parse_header, read_header
from localspec.models.hub import api
from localspec.models.hub.wait_notices import WaitNotices

_MOST_CACHED = 16
_cached: dict[tuple[api.Repo, RepoFile], Header] = {}
"""Headers that this process has read, the oldest first: a plan that is made again needs them."""


def header_of(repo: api.Repo, entry: RepoFile, waits: WaitNotices) -> Header:
    """The header, from the file in the cache or else from the Hub.

    Raises:
        ModelFileError: the file is not a GGUF, or is cut short on the Hub.
        LocalspecError: the Hub cannot be reached.
        Interrupted: cancelled by ``waits``.
    """
    key = repo, entry
    if key not in _cached:
        while len(_cached) >= _MOST_CACHED:
            del _cached[next(iter(_cached))]
        _cached[key] = _read(repo, entry, waits)
    return _cached[key]


def _read(repo: api.Repo, entry: RepoFile, waits: WaitNotices) -> Header:
    local = hf_cache.find_file(repo.name, entry.path, repo.commit)
    if local is not None and local.stat().st_size == entry.size:
        try:
            return read_header(local)
        except ModelFileError:  # damaged in the cache: the pull that follows repairs it
            pass
    name = entry.path.rsplit("/", 1)[-1]
    header = parse_header(api.fetcher(repo, entry, waits), entry.size, name)
    if header.end > entry.size:
        raise ModelFileError(
            f"{name} is cut short on the Hub: it has {entry.size} of {header.end} bytes; choose "
            "another file or repository"
        )
    return header
