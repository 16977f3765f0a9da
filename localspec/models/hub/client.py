"""Requests to the Hub: address, token, proxies and limits, by the variables of huggingface_hub.

Variables: HF_ENDPOINT, HF_TOKEN (or `hf auth login`), HF_HUB_DISABLE_IMPLICIT_TOKEN,
HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT, HF_HUB_ETAG_TIMEOUT, HF_HUB_USER_AGENT_ORIGIN, and the
proxies of the environment. The token goes to the Hub's own origin and nowhere else. Answers are
read up to a limit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Iterator

import httpx2

from localspec import __version__
from localspec.core import proxies
from localspec.core.errors import AccessError, Interrupted, ModelNotFoundError, UsageError
from localspec.core.files.private import without_user
from localspec.models.catalog.links import forbidding_variable, is_true
from localspec.models.hub.answers import is_page

HUB = "https://huggingface.co"
READ_TIMEOUT = 30.0
"""Seconds without a byte; HF_HUB_DOWNLOAD_TIMEOUT overrides it."""
LONGEST_ANSWER, _LEAST_RATE = 60.0, 10_000
"""Seconds that the answer to a question may take; longer if it brings so many bytes a second."""
_CONNECT_TIMEOUT = 10.0
_MOST_JSON = 32 << 20
"""Bytes of one answer; a page of a thousand files has half a megabyte."""
_TIMEOUTS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


class StatusError(Exception):
    """A status of 400 or more. ``redirected``: another host than the Hub's sent it."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.status = response.status_code
        self.headers = response.headers
        self.host = response.url.host
        self.path = response.url.path
        self.redirected = bool(response.history) and origin(response.url) != origin(
            httpx2.URL(endpoint())
        )


class NotAHubError(Exception):
    """An answer that no Hub gives; ``str`` says in which way."""

    def __init__(self, how: str, *, page: bool = False) -> None:
        super().__init__(how)
        self.page = page
        """Whether it is a page for a browser."""


REQUEST_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, StatusError)
"""Errors that a request can end in, apart from LocalspecErrors."""


def endpoint() -> str:
    """The Hub's address, or that of the mirror which HF_ENDPOINT names.

    Raises:
        UsageError: HF_ENDPOINT is not an http address.
    """
    text = os.environ.get("HF_ENDPOINT", "").strip()
    if not text:
        return HUB
    if proxies.is_address(text, proxies.WEB):
        return text.rstrip("/")
    told = without_user(text)
    hint = f"; write https://{told}" if proxies.is_address(f"https://{text}", proxies.WEB) else ""
    raise UsageError(f"HF_ENDPOINT={told} is not an http address{hint}")


def is_mirror() -> bool:
    """Whether HF_ENDPOINT names another address than the Hub's.

    Raises:
        UsageError: see `endpoint`.
    """
    return endpoint() != HUB


def shown() -> str:
    """The Hub's address without a password and keys, whatever characters these have.

    Raises:
        UsageError: see `endpoint`.
    """
    return without_user(endpoint())


def origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Scheme, host and port."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host.lower(), port


def token() -> str | None:
    """The user's token; None where there is none, or where it must not be sent.

    Raises:
        AccessError: it has characters that no token has.
    """
    if is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return None
    for name in _TIMEOUTS:
        timeout(name)  # huggingface_hub reads these at import and would raise ValueError
    from huggingface_hub import get_token

    found = get_token()
    if found and not (found.isascii() and found.isprintable() and " " not in found):
        raise AccessError("HF_TOKEN contains characters that no token has; set it again")
    return found


def timeout(name: str) -> httpx2.Timeout:
    """Timeouts of a request by the variable that huggingface_hub reads for it.

    Raises:
        UsageError: the variable is not a number of seconds.
    """
    text = os.environ.get(name, "").strip()
    if text and not (text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{name}={text[:40]} must be a whole number of seconds")
    return httpx2.Timeout(float(text) if text else READ_TIMEOUT, connect=_CONNECT_TIMEOUT)


def headers(*, start: int = 0, end: int | None = None) -> dict[str, str]:
    """Headers of a request for a range of bytes; ``end`` is not included.

    Raises:
        AccessError: see `token`.
    """
    return {**_own_headers(), "Range": f"bytes={start}-{'' if end is None else end - 1}"}


def _own_headers() -> dict[str, str]:
    found = {
        "User-Agent": f"localspec/{__version__}",
        "Accept-Encoding": "identity",  # compressed bytes have other offsets
    }
    from_whom = os.environ.get("HF_HUB_USER_AGENT_ORIGIN", "")
    if from_whom and from_whom.isascii() and from_whom.isprintable():
        found["User-Agent"] += f"; origin/{from_whom}"
    if secret := token():
        found["Authorization"] = f"Bearer {secret}"  # dropped by the client at a redirect elsewhere
    return found


@contextlib.contextmanager
def stream(
    url: str,
    asked: dict[str, str],
    *,
    method: str = "GET",
    limit: str = "HF_HUB_DOWNLOAD_TIMEOUT",
    follow: bool = True,
) -> Iterator[httpx2.Response]:
    """An answer whose body has not been read yet.

    Raises:
        StatusError: a status of 400 or more; the body is not read.
        httpx2.HTTPError: the connection failed.
        LocalspecError: offline, or a proxy that cannot be used.
    """
    if (variable := forbidding_variable()) is not None:
        raise ModelNotFoundError(f"{variable} forbids connections, and this is not here")
    with _client().stream(
        method, url, headers=asked, timeout=timeout(limit), follow_redirects=follow
    ) as response:
        if response.status_code >= 400:
            raise StatusError(response)
        yield response


def in_time(chunks: Iterator[bytes], cancel: threading.Event) -> Iterator[bytes]:
    """The parts of an answer, each of which has the time that a connection may be silent.

    Raises:
        Interrupted: ``cancel`` is set.
        httpx2.ReadTimeout: all of it takes too long.
    """
    begun, n_bytes = time.monotonic(), 0
    for chunk in chunks:
        n_bytes += len(chunk)
        if cancel.is_set():
            raise Interrupted("interrupted")
        if time.monotonic() - begun > LONGEST_ANSWER + n_bytes / _LEAST_RATE:
            raise httpx2.ReadTimeout("the answer comes too slowly")
        yield chunk


def get_json(url: str, cancel: threading.Event) -> tuple[object, str | None]:
    """The JSON at an address of the Hub, and the address of its next page.

    Raises:
        NotAHubError: the answer is not JSON, too large or too deep, or its next page is elsewhere.
        Interrupted: see `in_time`.
        StatusError, httpx2.HTTPError, LocalspecError: see `stream`.
    """
    body = bytearray()
    with stream(url, _own_headers(), limit="HF_HUB_ETAG_TIMEOUT") as response:
        for chunk in in_time(response.iter_bytes(), cancel):
            body += chunk
            if len(body) > _MOST_JSON:
                raise NotAHubError(f"it sends more than {_MOST_JSON >> 20} MiB")
        further = response.links.get("next", {}).get("url")
        following = None if further is None else response.url.join(further)
    if following is not None and origin(following) != origin(httpx2.URL(endpoint())):
        raise NotAHubError("its next page is on another host")  # it must not get the token
    try:
        return json.loads(body), None if following is None else str(following)
    except (ValueError, RecursionError):
        raise NotAHubError("it sends no JSON", page=is_page(response.headers)) from None


def head(url: str) -> httpx2.Headers:
    """The headers of the Hub's own answer; redirects are not followed.

    Raises:
        StatusError, httpx2.HTTPError, LocalspecError: see `stream`.
    """
    asked, limit = _own_headers(), "HF_HUB_ETAG_TIMEOUT"
    with stream(url, asked, method="HEAD", limit=limit, follow=False) as response:
        return response.headers


@functools.cache
def _client() -> httpx2.Client:
    # trust_env would read the proxies once, and refuse all of them where one is invalid.
    made = httpx2.Client(transport=proxies.ByEnvironment(), trust_env=False)
    atexit.register(made.close)
    return made
