"""The memory for all bodies together, from their arrival until their request is answered, and for
what answers are made of, until their clients have read them; and who sends a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from localspec.serve.http.errors import RETRY_SECONDS, ApiError, too_busy

FREE = 1 << 16
"""Bytes of each body that are not counted, so that large bodies never keep small ones out; the
limit of connections bounds their sum.
"""

STATE_KEY = "localspec.caller"
"""Key of the caller in an ASGI scope."""


class BodyBudget:
    """ASGI middleware that counts the bytes of bodies and answers."""

    def __init__(self, app: ASGIApp, most: int, answers: int) -> None:
        """``most`` is how many bytes all bodies may have, ``answers`` all answers."""
        self._app = app
        self._most = most
        self._answers = answers
        self.held = 0
        self.answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and give back what its body and its answer took."""
        caller, share = caller_of(scope), Share(self)
        scope[STATE_KEY] = replace(caller, body=share)
        try:
            await self._app(scope, receive, send)
        finally:
            scope[STATE_KEY] = caller  # an error that is answered outside takes nothing any more
            self.held -= share.taken
            self.answering -= share.answering

    def take(self, n: int) -> None:
        """Take bytes.

        Raises:
            ApiError: 503, there are not so many now; 413, there never are.
        """
        said = (
            f"the choices and prompts of this request have {n >> 20} MB together, and "
            f"{self._most >> 20} MB is the most; ask for fewer at a time"
        )
        self.held = _more(self.held, n, n, self._most, said, "body_too_large")

    def take_unread(self, n: int, size: int) -> None:
        """Take more bytes, or give some back, of a stream that had so many which are not read. A
        client that has read nearly all is not refused its next part, however large.

        Raises:
            ApiError: 503, there are not so many now.
        """
        if n > 0 and size > FREE and self.answering + n > self._answers:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"this answer is read too slowly: {size >> 10} KB of it wait, and there is no "
                "memory for more; read faster, or ask for less at a time",
                code="read_too_slowly",
                retry_after=RETRY_SECONDS,
            )
        self.answering += n

    def take_answer(self, n: int, size: int) -> None:
        """Take more bytes, or give some back, of an answer that then has so many.

        Raises:
            ApiError: 503, there are not so many now; 413, there never are.
        """
        said = (
            f"the answer takes {size >> 20} MB, and {self._answers >> 20} MB is the most; ask for "
            "less at a time, or for a stream where this is none"
        )
        self.answering = _more(self.answering, n, size, self._answers, said, "answer_too_large")


def _more(held: int, n: int, size: int, most: int, said: str, code: str) -> int:
    """``held`` and ``n`` bytes, of one request ``size``; ``said`` is the reason where that are
    always too many. Bytes that are given back are never refused.
    """
    if size > most:
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, code=code)
    if n > 0 and held + n > most:
        raise too_busy("too many large requests are being answered; try again later")
    return held + n


class Share:
    """What one request has taken."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.taken = 0
        self.answering = 0
        self._unread, self._size = 0, 0
        self._before: int | None = None
        self._kept = 0

    def next_part(self) -> None:
        """What `stream` takes until the next call is one part, which may come in pieces."""
        self._before = self._size

    def stream(self, size: int) -> None:
        """Take what the parts of a stream need that wait for its client, instead of what they
        needed before.

        Raises:
            ApiError: see `BodyBudget.take_unread`.
        """
        more = max(size - FREE, 0) - self._unread
        before = self._size if self._before is None else min(self._before, self._size)
        self._budget.take_unread(more, before)
        self.answering += more
        self._unread += more
        self._size = size

    def answer(self, size: int) -> None:
        """Take what an answer of this size needs, or what it is made of; again for what comes
        beside it.

        Raises:
            ApiError: see `BodyBudget.take_answer`.
        """
        if size > FREE:
            self._budget.take_answer(size, size)
            self.answering += size

    def keep(self, size: int) -> None:
        """Take what the events need that an answer is made of, instead of what they needed before.

        Raises:
            ApiError: see `BodyBudget.take_answer`.
        """
        more = max(size - FREE, 0) - self._kept
        if more:
            self._budget.take_answer(more, size)
            self.answering += more
            self._kept += more

    def grow(self, size: int) -> None:
        """Take what a body of this size needs, or what is made of it.

        Raises:
            ApiError: see `BodyBudget.take`.
        """
        needed = size - FREE - self.taken
        if needed > 0:
            self._budget.take(needed)
            self.taken += needed


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind one HTTP request."""

    owner: str = ""
    """`ReplyRequest.owner`: what was read for one is never reused for another."""
    label: str = "local"
    """Name for the log; it tells no key."""
    trace: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """The headers that name the trace which the request is a part of (W3C Trace Context)."""
    body: Share | None = field(default=None, compare=False)
    """What the request has taken of the memory for all; None where nothing is limited."""


def caller_of(scope: Any) -> Caller:
    """The caller that the guard found; see `localspec.serve.http.guard`."""
    found = scope.get(STATE_KEY)
    return found if isinstance(found, Caller) else Caller()
