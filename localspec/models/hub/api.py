"""The Hub's description of a repository: its commit, and its files with sizes and hashes, and their
GGUF headers, read without fetching the files.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from localspec.core.errors import LocalspecError, ModelFileError, ModelNotFoundError
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.catalog.links import forbidding_variable
from localspec.models.gguf.header import Header, parse_header, read_header
from localspec.models.hub import client
from localspec.models.hub.answers import encoding, require_file, require_plain
from localspec.models.hub.client import NotAHubError, StatusError, endpoint
from localspec.models.hub.download_jobs import WaitNotices
from localspec.models.hub.error_messages import hub_error
from localspec.models.hub.listings import files, is_valid, licence, valid_entries
from localspec.models.hub.retry import with_retries

_REPO = re.compile(r"[\w][\w.-]*/[\w][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LARGE = 1000
"""Files; longer listings are read page by page."""
_MOST_PAGES = 200
_MOST_HEADS = 64
"""Files that are looked up one by one, where a mirror lists no sizes."""

_MOST_CACHED = 16
_cached: dict[tuple[Repo, RepoFile], Header] = {}
"""Headers that this process has read, the oldest first: a plan that is made again needs them."""


@dataclass(frozen=True, slots=True)
class Repo:
    """A model repository at one commit."""

    name: str
    commit: str
    entries: tuple[RepoFile, ...]
    licence: str | None
    gated: bool

    def entry(self, path: str) -> RepoFile | None:
        """A file of the repository by path."""
        return next((e for e in self.entries if e.path == path), None)


def look_up(repo: str, revision: str | None = None, waits: WaitNotices | None = None) -> Repo:
    """A repository with the sizes and hashes of its files; usually one request.

    Raises:
        ModelNotFoundError: no such repository or revision, or offline.
        AccessError: it is private or disabled, or the token is refused.
        LocalspecError: the Hub cannot be reached, or does not answer as a Hub does.
    """
    if not _REPO.fullmatch(repo):
        raise ModelNotFoundError(f"{repo!r} is not the name of a repository: it must be user/name")
    if (variable := forbidding_variable()) is not None:
        raise ModelNotFoundError(f"{repo} is not here, and {variable} forbids connections")
    return _Listing(repo, waits or WaitNotices()).read(revision)


class _Listing:
    """The requests about one repository."""

    def __init__(self, repo: str, waits: WaitNotices) -> None:
        self._repo, self._waits = repo, waits
        self._api = f"{endpoint()}/api/models/{repo}"

    def read(self, revision: str | None) -> Repo:
        place = self._api + ("" if revision is None else f"/revision/{quote(revision, safe='')}")
        facts = self._ask(f"{place}?blobs=true")[0]
        if not isinstance(facts, dict):
            raise self._not_a_hub("its answer is no object")
        commit = facts.get("sha")
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise self._not_a_hub(f"it does not say which commit of {self._repo} it serves")
        return Repo(
            self._repo,
            commit,
            tuple(self._entries(facts.get("siblings"), commit)),
            licence(facts.get("cardData")),
            bool(facts.get("gated")),
        )

    def _entries(self, siblings: object, commit: str) -> list[RepoFile]:
        """Files by the answer itself, else by the tree, else by a request for each file."""
        listed = self._parsed(siblings)
        models = [e for e in listed if e.path.lower().endswith(".gguf") and is_valid(e.path)]
        lacking = [e for e in models if not e.etag]
        if not lacking and len(listed) < _LARGE:
            return valid_entries(listed)
        try:
            found = self._tree(commit)
        except LocalspecError:  # a mirror without that listing
            if not lacking:
                return valid_entries(listed)
            asked = (self._head(entry, commit) for entry in lacking[:_MOST_HEADS])
            found = [entry for entry in asked if entry is not None]
        if lacking and not valid_entries(found):
            raise self._not_a_hub("it states no sizes and hashes of files")
        return valid_entries(found)

    def _tree(self, commit: str) -> list[RepoFile]:
        place: str | None = f"{self._api}/tree/{commit}?recursive=true"
        found: list[RepoFile] = []
        for _ in range(_MOST_PAGES):
            if place is None:
                return found
            page, place = self._ask(place)
            found += self._parsed(page)
        raise self._not_a_hub(f"it lists {self._repo} in more than {_MOST_PAGES} pages")

    def _parsed(self, listing: object) -> list[RepoFile]:
        try:
            return files(listing)
        except NotAHubError as error:
            raise hub_error(self._repo, error, 0.0) from None

    def _head(self, entry: RepoFile, commit: str) -> RepoFile | None:
        """A file with size and hash by the headers of its own address; None if it is not there."""
        place = url(self._repo, commit, entry.path)

        def ask() -> httpx2.Headers | None:
            try:
                return client.head(place)
            except StatusError as error:
                if error.status != 404:
                    raise
                return None

        found = with_retries(self._repo, ask, self._waits)
        if found is None:
            return None
        length = "" if encoding(found) else found.get("Content-Length", "")
        size = found.get("X-Linked-Size") or length
        etag = (found.get("X-Linked-ETag") or found.get("ETag") or "").removeprefix("W/").strip('"')
        if not re.fullmatch(r"\d{1,15}", size, re.ASCII):
            return entry
        return RepoFile(entry.path, int(size), etag if len(etag) == 64 else None, etag)

    def _ask(self, place: str) -> tuple[Any, str | None]:
        waits = self._waits
        return with_retries(self._repo, lambda: client.get_json(place, waits.cancel), waits)

    def _not_a_hub(self, how: str) -> LocalspecError:
        return hub_error(self._repo, NotAHubError(how), 0.0)


def url(repo: str, commit: str, path: str) -> str:
    """Address of a file; plain HTTP with range requests."""
    return f"{endpoint()}/{repo}/resolve/{commit}/{quote(path)}"


def _range(repo: Repo, entry: RepoFile, start: int, end: int, cancel: threading.Event) -> bytes:
    """The bytes of a range of a file."""
    place = url(repo.name, repo.commit, entry.path)
    with client.stream(place, client.headers(start=start, end=end)) as response:
        require_plain(response, entry)
        # A server without range requests sends the whole file: read up to the end of the range.
        whole = response.status_code != 206
        if whole:
            require_file(response, entry)
        skip, found = start if whole else 0, bytearray()
        for chunk in client.in_time(response.iter_raw(), cancel):
            found += chunk
            if len(found) >= skip + end - start:
                break
        return bytes(found[skip : skip + end - start])


def header_of(repo: Repo, entry: RepoFile, waits: WaitNotices) -> Header:
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


def _read(repo: Repo, entry: RepoFile, waits: WaitNotices) -> Header:
    local = hf_cache.find_file(repo.name, entry.path, repo.commit)
    if local is not None and local.stat().st_size == entry.size:
        try:
            return read_header(local)
        except ModelFileError:  # damaged in the cache: the pull that follows repairs it
            pass

    def fetch(start: int, end: int) -> bytes:
        cancel = waits.cancel
        return with_retries(repo.name, lambda: _range(repo, entry, start, end, cancel), waits)

    name = entry.path.rsplit("/", 1)[-1]
    header = parse_header(fetch, entry.size, name)
    if header.end > entry.size:
        raise ModelFileError(
            f"{name} is cut short on the Hub: it has {entry.size} of {header.end} bytes; choose "
            "another file or repository"
        )
    return header
