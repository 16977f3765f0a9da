"""Retries of requests to the Hub: how long to wait, what to show meanwhile, when to give up."""

from __future__ import annotations

import concurrent.futures
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2

from localspec.core.errors import Interrupted
from localspec.models.hub.answers import WrongAnswerError
from localspec.models.hub.client import REQUEST_ERRORS, NotAHubError, StatusError
from localspec.models.hub.download_jobs import WaitNotices
from localspec.models.hub.error_messages import hub_error, login_wanted

ATTEMPTS = 8
"""Attempts in a row without progress before a download fails; two minutes with the waits."""
_QUESTION_ATTEMPTS = 4
"""Attempts of a question, for which a user waits; a failed connection counts twice."""
_STALE_ATTEMPTS = 3
"""Attempts where the server that the Hub redirects to refuses."""
FIRST_WAIT = 1.0
"""Seconds before the second attempt; doubled each time, up to half a minute."""
_LONGEST_OWN_WAIT = 30.0
_LONGEST_WAIT = 300.0
"""Seconds; where a server asks for more, the request fails at once."""
SHOWN_FROM = 2.0
"""Seconds; shorter waits are not shown."""
_COUNT = 1.0
"""Seconds between two steps of a countdown."""
_TICK = 0.05
"""Seconds between two looks whether a request is still wanted."""
_EXHAUSTED = re.compile(r";\s*r=0\s*;\s*t=(\d{1,9})")
"""RateLimit header: no requests remain for ``t`` seconds."""
_RETRY = frozenset({408, 429, 500, 502, 503, 504})
_STALE = frozenset({401, 403, 404, 410})
_Result = TypeVar("_Result")


class Retry:
    """Waits between attempts: longer each time, and at least as long as the server asks."""

    def __init__(self, repo: str, waits: WaitNotices, *, question: bool = False) -> None:
        self._repo, self._waits, self._question = repo, waits, question
        self._failed = self._refused = 0

    def progress(self) -> None:
        """More than ever has arrived: count failures from 0 again."""
        self._failed = self._refused = 0

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            LocalspecError: a retry cannot help, or the attempts are used up.
            Interrupted: cancelled.
        """
        asked = self.count(error)
        own = min(FIRST_WAIT * 2 ** (self._failed - 1), _LONGEST_OWN_WAIT)
        self._count_down(_reason(error), max(asked, own))

    def count(self, error: Exception) -> float:
        """Count a failure; returns the seconds that the server asks to wait.

        Raises:
            LocalspecError: see `wait`.
        """
        self._failed += 2 if self._question and isinstance(error, httpx2.ConnectError) else 1
        self._refused += _is_stale(error)
        asked = requested_wait(error)
        spent = self._failed >= self._attempts(error) or self._refused >= _STALE_ATTEMPTS
        if spent or asked > _LONGEST_WAIT:
            raise hub_error(self._repo, error, asked) from None
        return asked

    def _attempts(self, error: Exception) -> int:
        most = min(ATTEMPTS, _QUESTION_ATTEMPTS) if self._question else ATTEMPTS
        if isinstance(error, StatusError):
            return most if error.status in _RETRY or _is_stale(error) else 1
        if isinstance(error, httpx2.UnsupportedProtocol) or login_wanted(error):
            return 1
        return most if isinstance(error, httpx2.TransportError) else 1

    def _count_down(self, why: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if seconds >= SHOWN_FROM:
                self._waits.show(why, left)
            if self._waits.cancel.wait(min(left, _COUNT)):
                raise Interrupted("interrupted")
        self._waits.clear()


def with_retries(repo: str, attempt: Callable[[], _Result], waits: WaitNotices) -> _Result:
    """The result of ``attempt``, retried where that may help.

    Raises:
        LocalspecError, Interrupted: see `Retry.wait`.
    """
    retry = Retry(repo, waits, question=True)
    while True:
        try:
            return _while_wanted(attempt, waits.cancel)
        except NotAHubError as error:
            raise hub_error(repo, error, 0.0) from None
        except REQUEST_ERRORS as error:
            retry.wait(error)


def _while_wanted(attempt: Callable[[], _Result], cancel: threading.Event) -> _Result:
    """The result of ``attempt``, in a thread that ends on its own: a name that is looked up and a
    server that is silent cannot be interrupted, and the end of a program does not wait for them.

    Raises:
        Interrupted: ``cancel`` was set.
    """
    future = concurrent.futures.Future[_Result]()

    def run() -> None:
        try:
            future.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="asking the Hub", daemon=True).start()
    while not concurrent.futures.wait([future], _TICK).done:
        if cancel.is_set():
            raise Interrupted("interrupted")
    return future.result()


def requested_wait(error: Exception) -> float:
    """Seconds that the server asks to wait; 0 if it does not ask."""
    if not isinstance(error, StatusError) or error.status not in _RETRY:
        return 0.0
    if spent := _EXHAUSTED.search(error.headers.get("RateLimit", "")):
        return float(spent[1])
    text = error.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text, re.ASCII):
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _is_stale(error: Exception) -> bool:
    """A signed address has expired; the next attempt asks the Hub for a new one."""
    return isinstance(error, StatusError) and error.redirected and error.status in _STALE


def _reason(error: Exception) -> str:
    if isinstance(error, StatusError):
        who = error.host if error.redirected else "the Hub"
        if error.status == 429:
            return f"{who} asks to wait (429)"
        return f"{who} has a problem ({error.status})"
    if isinstance(error, WrongAnswerError):
        return "the server sends something else than the file"
    return "the connection failed"
