"""The header of a file of a repository, without the file."""

from __future__ import annotations

from localspec.errors import ModelFileError
from localspec.models.gguf.header import Header, parse_header, read_header
from localspec.models.hub import api, hf_cache
from localspec.models.hub.file_names import RepoFile
from localspec.models.hub.wait_notices import WaitNotices

_MOST_REMEMBERED = 16
_remembered: dict[tuple[api.Repo, RepoFile], Header] = {}
"""Of this process, the oldest first: a plan that is made anew asks again."""


def header_of(repo: api.Repo, entry: RepoFile, waits: WaitNotices) -> Header:
    """Read it from the file that is here, else over the line.

    Raises:
        ModelFileError: it is no GGUF, or cut short on the Hub.
        LocalspecError: the Hub cannot be reached.
        Interrupted: ``waits`` ended it.
    """
    key = repo, entry
    if key not in _remembered:
        while len(_remembered) >= _MOST_REMEMBERED:
            del _remembered[next(iter(_remembered))]
        _remembered[key] = _read(repo, entry, waits)
    return _remembered[key]


def _read(repo: api.Repo, entry: RepoFile, waits: WaitNotices) -> Header:
    local = hf_cache.find_file(repo.name, entry.path, repo.commit)
    if local is not None and local.stat().st_size == entry.size:
        try:
            return read_header(local)
        except ModelFileError:  # damaged here: the pull that follows finds out and mends it
            pass
    name = entry.path.rsplit("/", 1)[-1]
    header = parse_header(api.fetcher(repo, entry, waits), entry.size, name)
    if header.end > entry.size:
        raise ModelFileError(
            f"{name} is cut short on the Hub: it has {entry.size} bytes of {header.end}; choose "
            "another file or repository"
        )
    return header
