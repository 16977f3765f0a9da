"""Bodies: requests are read within limits of size and time, answers end when nobody reads them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from localspec.core.errors import LocalspecError
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import OPENAI, ApiError, of_engine
from localspec.serve.http.half_closed import FILLER_KEY
from localspec.serve.http.json_body import parse
from localspec.serve.http.settings import Limits
from localspec.serve.http.sse import COMMENT, EVENTS, dumps_in_steps

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
    return await elsewhere(len(raw), lambda: read(parse(raw), len(raw)))


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


class StreamedAnswer(Response):
    """An answer that is sent as it comes.

    Until the first part is there, an error still becomes the status of the answer; while nothing
    comes, comments keep the connection open. The iterator is closed when the client leaves; one
    that does not read is disconnected by `localspec.serve.http.connections`.
    """

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        limits: Limits,
        *,
        failed: Callable[[ApiError], bytes] = OPENAI.event,
        media_type: str = EVENTS,
        comment: bytes = COMMENT,
    ) -> None:
        """``failed`` ends a stream that fails after it has begun; ``comment`` is what a reader of
        this type skips.
        """
        self.status_code = 200
        self.background = None
        self.body = b""
        self._parts = parts
        self._limits = limits
        self._failed = failed
        self._comment_bytes = comment
        self.media_type = media_type
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts.

        Raises:
            ApiError, LocalspecError: there is no first part.
        """
        scope[FILLER_KEY] = self._comment_bytes
        with contextlib.suppress(GoneError):
            await while_connected(Request(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        body = _Body(send, self.status_code, self.raw_headers)
        comments = _Comments(body, self._limits.keep_alive_seconds, self._comment_bytes)
        try:
            try:
                async for part in self._parts:
                    if part:
                        await body.write(part)
            except (ApiError, LocalspecError) as raised:
                await comments.stop()
                if not body.started:
                    raise
                error = raised if isinstance(raised, ApiError) else of_engine(raised)
                await body.write(self._failed(error))
            await body.end()
        finally:
            await comments.stop()
            close = getattr(self._parts, "aclose", None)
            if close is not None:
                await close()


class _Body:
    """The parts of an answer on their way to the connection, its status before the first one."""

    def __init__(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._start = {"type": "http.response.start", "status": status, "headers": headers}
        self._turn = asyncio.Lock()
        self.started = False
        self.written_at = time.monotonic()

    @property
    def writing(self) -> bool:
        """Whether a part waits for the client to read."""
        return self._turn.locked()

    async def write(self, part: bytes) -> None:
        """Send a part; waits while the client's buffers are full."""
        await self._write(part, more=True)

    async def end(self) -> None:
        """Say that no part follows."""
        await self._write(b"", more=False)

    async def _write(self, part: bytes, *, more: bool) -> None:
        async with self._turn:
            if not self.started:
                await self._send(self._start)
                self.started = True
            await self._send({"type": "http.response.body", "body": part, "more_body": more})
            self.written_at = time.monotonic()


class _Comments:
    """Sends a comment whenever nothing was sent for a while. There is no task before one is due."""

    def __init__(self, body: _Body, pause: float, comment: bytes) -> None:
        self._body, self._pause, self._comment = body, pause, comment
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(pause, self._look)

    def _look(self) -> None:
        silent = time.monotonic() - self._body.written_at
        if silent < self._pause or self._body.writing:
            self._again(max(self._pause - silent, self._pause / 10))
        else:
            self._sending = self._loop.create_task(self._send())

    def _again(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    async def _send(self) -> None:
        await self._body.write(self._comment)
        self._again(self._pause)

    async def stop(self) -> None:
        """Send no more; wait until one that is being sent is given up."""
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._sending
            self._timer.cancel()


LARGE = 1 << 16
"""Bytes from which a body takes more than a few milliseconds."""
_THREAD = ThreadPoolExecutor(1, "localspec large bodies")


async def elsewhere(size: int, work: Callable[[], _T]) -> _T:
    """What ``work`` returns, which has to do with ``size`` bytes; it must touch nothing that
    belongs to the loop.

    Raises:
        Exception: what ``work`` raises.
    """
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
