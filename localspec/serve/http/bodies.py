"""Bodies: requests are read within limits of size and time, whole answers are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from localspec.core.threads_in_turn import ThreadsInTurn
from localspec.serve.http.body_budget import Caller, caller_of
from localspec.serve.http.errors import ApiError
from localspec.serve.http.json_body import parse
from localspec.serve.http.settings import Limits
from localspec.serve.http.sse import dumps_in_steps

_T = TypeVar("_T")


class GoneError(Exception):
    """The client is no longer connected: nobody takes the answer."""


class JSONAnswer(JSONResponse):
    """JSON as `localspec.serve.http.sse.dumps` writes it. A large one is made `elsewhere`."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return dumps_in_steps(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and wait until the client has read it: until then its bytes are in memory.

        Raises:
            ApiError: there is no memory for it.
        """
        del receive
        share = caller_of(scope).body
        if share is not None:
            share.keep(0)  # it is made
            share.answer(len(self.body))
        head = {"type": "http.response.start", "status": self.status_code}
        await send({**head, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})  # waits for full buffers


async def read_body_as(
    request: Request, limits: Limits, read: Callable[[dict[str, Any], int], _T]
) -> _T:
    """What ``read`` makes of the JSON object of a request's body and of its bytes; in a thread,
    where the body is large.

    Raises:
        ApiError: there is none, it is too large or too slow, or ``read`` raises it.
        GoneError: the client left while it sent.
    """
    raw = await read_body(request, limits)
    caller = caller_of(request.scope)
    return await elsewhere(caller, len(raw), lambda: read(parse(raw), len(raw)))


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        ApiError: 413 if it is too large, 408 if it takes too long, 415 if it is compressed.
        GoneError: the client left while it sent.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not read; send plain JSON"
        )
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdecimal() and int(announced[:20]) > limits.body_bytes:
        raise _too_large(limits)
    body, share = bytearray(), caller_of(request.scope).body
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise _too_large(limits)
                if share is not None:
                    share.grow(len(body))
    except TimeoutError:
        raise ApiError(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise GoneError from None
    return bytes(body)


def _too_large(limits: Limits) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than {limits.body_bytes >> 20} MB, the most that this server reads",
        code="body_too_large",
    )


async def while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work``, which the client's leaving cancels. It is done in this task: one less
    in every request. The body must have been read.

    Raises:
        GoneError: it left.
    """
    task, gone, over = asyncio.current_task(), False, False
    leaving = asyncio.create_task(_left(request.receive))

    def left(_: asyncio.Task[None]) -> None:
        nonlocal gone
        if task is not None and not (over or leaving.cancelled()):
            leaving.exception()  # a connection that fails is one that is gone
            gone = True
            task.cancel()

    leaving.add_done_callback(left)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and task is not None and task.cancelling() == 1:
            raise GoneError from None
        raise
    finally:
        over = True
        leaving.cancel()
        if gone and task is not None:
            task.uncancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


LARGE = 1 << 16
"""Bytes from which a body takes more than a few milliseconds."""
_THREAD = ThreadsInTurn("localspec large bodies", 1)


async def elsewhere(
    caller: Caller, size: int, work: Callable[[], _T], *, first: bool = False
) -> _T:
    """What ``work`` returns, which has to do with ``size`` bytes of a caller; it must touch nothing
    that belongs to the loop. ``first``: it comes before all else of that caller.

    Raises:
        Exception: what ``work`` raises.
    """
    if size <= LARGE:
        return work()
    return await asyncio.wrap_future(_THREAD.do(caller.owner, work, first=first))
