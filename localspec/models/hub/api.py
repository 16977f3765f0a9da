"""What the Hub says of a repository, and its refusals as errors of ours.

Tokens, endpoint and offline mode are huggingface_hub's own: HF_TOKEN or `hf auth login`,
HF_ENDPOINT, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, TypeVar

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_session,
    get_token,
    hf_hub_url,
    hf_raise_for_status,
)
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from localspec import __version__
from localspec.errors import AccessError, Interrupted, LocalspecError, ModelNotFoundError
from localspec.models.gguf.source import Fetch
from localspec.models.hub.file_names import Entry

ATTEMPTS = 8
"""In a row without a byte of progress before a download gives up; with the waits, two minutes."""
_QUESTION_ATTEMPTS = 4
"""The same for a question, where a person sits and waits; no connection at all counts twice."""
FIRST_WAIT = 1.0
"""Seconds before the second attempt; doubled each time, up to half a minute."""
_LONGEST_OWN_WAIT = 30.0
_LONGEST_WAIT = 300.0
"""Seconds; a server that wants longer is not waited for."""
TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_COMMIT, _ETAG = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SPENT = re.compile(r";\s*r=0\s*;\s*t=(\d+)")
"""In the RateLimit header: nothing remains, for so many seconds."""
_RETRY = frozenset({408, 429, 500, 502, 503, 504})
_Result = TypeVar("_Result")


class CommitGoneError(ModelNotFoundError):
    """The repository is there, the commit is not."""


@dataclass(frozen=True, slots=True)
class Repo:
    """A model repository at one commit."""

    name: str
    commit: str
    entries: tuple[Entry, ...]
    licence: str | None
    gated: bool

    def entry(self, path: str) -> Entry | None:
        """A file of it by path."""
        return next((e for e in self.entries if e.path == path), None)


def is_offline() -> bool:
    """Whether the environment forbids connections."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in {"1", "ON", "YES", "TRUE"} or constants.is_offline_mode()


def endpoint() -> str:
    """The Hub's address."""
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def look_up(repo: str, revision: str | None = None) -> Repo:
    """The files of a repository, with sizes and hashes; one request.

    Raises:
        ModelNotFoundError: no such repository or commit, or offline.
        AccessError: it is private or disabled, or the token is refused.
        LocalspecError: the Hub cannot be reached.
    """
    api = HfApi(endpoint=endpoint(), library_name="localspec", library_version=__version__)
    try:
        info = patiently(
            repo, lambda: api.model_info(repo, revision=revision, files_metadata=True, timeout=30.0)
        )
        entries = tuple(
            Entry(
                path=found.rfilename,
                size=(found.lfs.size if found.lfs else found.size) or 0,
                sha256=found.lfs.sha256 if found.lfs else None,
                oid=found.blob_id or "",
            )
            for found in info.siblings or ()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LocalspecError(
            f"{endpoint()} does not answer as a Hub does; check HF_ENDPOINT"
        ) from None
    if info.sha is None or not _COMMIT.fullmatch(info.sha):
        raise LocalspecError(f"{endpoint()} does not say which commit of {repo} it serves")
    card: Any = info.card_data
    licence = card.get("license_name") or card.get("license") if card else None
    return Repo(
        repo,
        info.sha,
        tuple(entry for entry in entries if _is_sound(entry)),
        str(licence) if licence else None,
        bool(info.gated),
    )


def _is_sound(entry: Entry) -> bool:
    """Whether its path and hash may become names on disk."""
    parts = entry.path.split("/")
    return ".." not in parts and "" not in parts and bool(_ETAG.fullmatch(entry.etag))


def url(repo: str, commit: str, path: str) -> str:
    """Where a file is fetched from: plain HTTP, which knows ranges."""
    return hf_hub_url(repo, path, revision=commit, endpoint=endpoint())


def headers(start: int, end: int | None = None) -> dict[str, str]:
    """Of a request for a range of bytes; ``end`` is not included."""
    found = {
        "User-Agent": f"localspec/{__version__}",
        "Range": f"bytes={start}-{'' if end is None else end - 1}",
        "Accept-Encoding": "identity",  # compressed bytes have other offsets
    }
    if token := get_token():
        found["Authorization"] = f"Bearer {token}"  # dropped by the client at a redirect elsewhere
    return found


def fetcher(repo: Repo, entry: Entry) -> Fetch:
    """A function that fetches ranges of a file, for its header."""
    place = url(repo.name, repo.commit, entry.path)

    def once(start: int, end: int) -> bytes:
        with get_session().stream(
            "GET", place, headers=headers(start, end), timeout=TIMEOUT, follow_redirects=True
        ) as response:
            hf_raise_for_status(response)
            # A server that knows no ranges sends all from the start: read up to what is meant.
            skip, found = start if response.status_code == 200 else 0, bytearray()
            for chunk in response.iter_raw():
                found += chunk
                if len(found) >= skip + end - start:
                    break
            return bytes(found[skip : skip + end - start])

    return lambda start, end: patiently(repo.name, lambda: once(start, end))


def patiently(
    repo: str, attempt: Callable[[], _Result], cancel: threading.Event | None = None
) -> _Result:
    """Call the Hub, again after a while where that may help.

    Raises:
        LocalspecError: see `refuse`.
        Interrupted: ``cancel`` was set while waiting.
    """
    patience = Patience(repo, cancel, question=True)
    while True:
        try:
            return attempt()
        except (httpx2.HTTPError, HFValidationError, OfflineModeIsEnabled) as error:
            patience.wait(error)


class Patience:
    """Waits between attempts: longer each time, and as long as the server asks."""

    def __init__(
        self, repo: str, cancel: threading.Event | None = None, *, question: bool = False
    ) -> None:
        self._repo, self._failed = repo, 0
        self._cancel = cancel or threading.Event()
        self._question = question

    def progress(self) -> None:
        """Something arrived; the count starts anew."""
        self._failed = 0

    def wait(self, error: Exception) -> None:
        """Wait, or give up.

        Raises:
            LocalspecError: waiting would not help, or has not helped often enough.
            Interrupted: cancelled.
        """
        self._failed += 2 if self._question and isinstance(error, httpx2.ConnectError) else 1
        attempts = min(ATTEMPTS, _QUESTION_ATTEMPTS) if self._question else ATTEMPTS
        wanted = _wanted_wait(error)
        if not _may_pass(error) or self._failed >= attempts or wanted > _LONGEST_WAIT:
            refuse(self._repo, error)
        own = min(FIRST_WAIT * 2 ** (self._failed - 1), _LONGEST_OWN_WAIT)
        if self._cancel.wait(max(wanted, own)):
            raise Interrupted("interrupted")


def _may_pass(error: Exception) -> bool:
    if isinstance(error, HfHubHTTPError):
        answer = error.response
        # A signed address that has run out; the next attempt asks the Hub for a new one.
        stale = bool(answer.history) and answer.status_code in {401, 403, 404, 410}
        return answer.status_code in _RETRY or (stale and "X-Error-Code" not in answer.headers)
    return isinstance(error, httpx2.TransportError)


def _wanted_wait(error: Exception) -> float:
    """Seconds that the server asks to wait for; 0 if it does not."""
    if not isinstance(error, HfHubHTTPError):
        return 0.0
    if spent := _SPENT.search(error.response.headers.get("RateLimit", "")):
        return float(spent[1])
    said = error.response.headers.get("Retry-After", "").strip()
    if said.replace(".", "", 1).isdigit():
        return float(said)
    try:
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def refuse(repo: str, error: Exception) -> NoReturn:
    """Raise an error of ours for one of the Hub's."""
    raise _explained(repo, error) from None


def _explained(repo: str, error: Exception) -> LocalspecError:  # noqa: PLR0911 - one a cause
    page = f"{endpoint()}/{repo}"
    if isinstance(error, HFValidationError):
        return ModelNotFoundError(f"{repo!r} is no name of a repository: it must be user/name")
    if isinstance(error, OfflineModeIsEnabled):
        return ModelNotFoundError(f"{repo} is not here, and HF_HUB_OFFLINE forbids connections")
    if isinstance(error, GatedRepoError):  # first: it is a RepositoryNotFoundError, too
        if get_token() is None:
            return AccessError(
                f"{repo} is gated: accept its terms at {page}, then log in with `hf auth login` or "
                "set HF_TOKEN"
            )
        return AccessError(
            f"{repo} is gated, and your token has no access: accept its terms at {page}, and let "
            "the token read gated repositories"
        )
    if isinstance(error, DisabledRepoError):
        return AccessError(f"the Hub has disabled {repo}")
    if isinstance(error, RepositoryNotFoundError):
        hint = "" if get_token() else " (if it is private, set HF_TOKEN)"
        return ModelNotFoundError(f"there is no repository {repo} on the Hub{hint}")
    if isinstance(error, RevisionNotFoundError):
        return CommitGoneError(f"{repo} no longer has the commit that was asked for")
    if isinstance(error, RemoteEntryNotFoundError):
        return ModelNotFoundError(f"{repo} has no such file: {error.response.url.path}")
    if isinstance(error, HfHubHTTPError):
        return _by_status(repo, error)
    reason = str(error) or type(error).__name__
    return LocalspecError(
        f"cannot reach {endpoint()} ({reason}); what is here works with --offline"
    )


def _by_status(repo: str, error: HfHubHTTPError) -> LocalspecError:
    status = error.response.status_code
    if status in {401, 403}:
        which = "your token" if get_token() else "reading without a token"
        return AccessError(
            f"the Hub refuses {which} for {repo} ({status}); check HF_TOKEN or `hf auth login`"
        )
    if status == 429:
        wait = _wanted_wait(error)
        when = f" for {wait:.0f} s" if wait else ""
        return LocalspecError(f"the Hub asks to wait{when} (429); pull again later")
    if status >= 500:
        return LocalspecError(f"the Hub has trouble (status {status}); pull again later")
    return LocalspecError(f"the Hub answers {status} to a request for {repo}")
