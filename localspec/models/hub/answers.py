"""Answers that are not what was asked for, as pages of captive portals and proxies."""

from __future__ import annotations

import httpx2

from localspec.models.catalog.file_names import RepoFile

ELSEWHERE = "use another network or proxy"
LOG_IN = f"log in with a browser, or {ELSEWHERE}"
LOGIN_PAGE = f"a login page of the network or a proxy answers; {LOG_IN}"
_AS_IT_IS = frozenset({"", "identity", "aws-chunked"})
"""Encodings that leave the bytes of a file; the last is S3's word for how the file was uploaded."""


class WrongAnswerError(httpx2.RemoteProtocolError):
    """Something else came than what was asked for; ``str`` is the whole line for the user."""


def is_page(headers: httpx2.Headers) -> bool:
    """Whether an answer is a page for a browser."""
    return _kind(headers) == "text/html"


def encoding(headers: httpx2.Headers) -> str:
    """How the bytes of an answer are compressed; empty if they are not."""
    found = (one.strip().lower() for one in headers.get("Content-Encoding", "").split(","))
    return ", ".join(one for one in found if one not in _AS_IT_IS)


def require_plain(response: httpx2.Response, entry: RepoFile) -> None:
    """Refuse an answer that is compressed, though nobody has asked for that: its bytes are others.

    Raises:
        WrongAnswerError: it is.
    """
    if how := encoding(response.headers):
        raise WrongAnswerError(
            f"{entry.path} comes compressed ({how[:40]}) from {response.url.host}, as no Hub sends "
            f"it: a proxy changes it; {ELSEWHERE}, and pull again: what has arrived stays"
        )


def require_file(response: httpx2.Response, entry: RepoFile) -> None:
    """Refuse an answer without a range that has another length than the file, or is a page.

    Raises:
        WrongAnswerError: it is not the file.
    """
    length = response.headers.get("Content-Length", "").strip()
    kind = _kind(response.headers)
    right = length == str(entry.size) if length else not is_page(response.headers)
    if response.status_code == 200 and right:
        return
    said = ", ".join(filter(None, (kind[:60], length and f"{length[:20]} bytes")))
    raise WrongAnswerError(
        f"{response.url.host} sends something else ({said or response.status_code}) in place of "
        f"{entry.path} ({entry.size} bytes): {LOGIN_PAGE}, and pull again: what has arrived stays"
    )


def _kind(headers: httpx2.Headers) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()
