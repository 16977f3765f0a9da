"""Answers that are not the file that was asked for, as pages of captive portals and proxies."""

from __future__ import annotations

import httpx2

from localspec.models.catalog.file_names import RepoFile


class WrongAnswerError(httpx2.RemoteProtocolError):
    """Something else came than what was asked for; ``str`` is the whole line for the user."""


def require_file(response: httpx2.Response, entry: RepoFile) -> None:
    """Refuse an answer without a range that has another length than the file, or is a page.

    Raises:
        WrongAnswerError: it is not the file.
    """
    length = response.headers.get("Content-Length", "").strip()
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    right = length == str(entry.size) if length else kind != "text/html"
    if response.status_code == 200 and right:
        return
    said = ", ".join(filter(None, (kind[:60], length and f"{length[:20]} bytes")))
    raise WrongAnswerError(
        f"{response.url.host} sends something else ({said or response.status_code}) in place of "
        f"{entry.path} ({entry.size} bytes): a login page of the network or a proxy answers; log "
        "in with a browser, or use another network or proxy, and pull again: what has arrived stays"
    )
