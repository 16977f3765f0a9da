"""Answers that are sent as they come, however fast their clients read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.core.errors import LocalspecError
from localspec.serve.http.bodies import GoneError, while_connected
from localspec.serve.http.body_budget import FREE, Share, caller_of
from localspec.serve.http.errors import OPENAI, ApiError, of_engine
from localspec.serve.http.half_closed import FILLER_KEY
from localspec.serve.http.settings import Limits
from localspec.serve.http.sse import COMMENT, EVENTS


class StreamedAnswer(Response):
    """An answer that is sent as it comes.

    Until the first part is there, an error still becomes the status of the answer; while nothing
    comes, comments keep the connection open. The parts are made whether the client reads or not,
    and wait for it in the memory for answers; so nothing that they are made with waits for a
    client. Their generator is closed when the client leaves; one that does not read is disconnected
    by `localspec.serve.http.connections`.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
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
        unread = _Unread(caller_of(scope).body)
        with contextlib.suppress(GoneError):
            await while_connected(Request(scope, receive), self._send(send, unread))

    async def _send(self, send: Send, unread: _Unread) -> None:
        body = _Body(send, self.status_code, self.raw_headers)
        comments = _Comments(body, self._limits.keep_alive_seconds, self._comment_bytes)
        making = asyncio.create_task(self._make(unread), name="parts of an answer")
        try:
            try:
                async for part in unread:
                    await body.write(part)
                await making
            except (ApiError, LocalspecError) as raised:
                await comments.stop()
                if not body.started:
                    raise
                error = raised if isinstance(raised, ApiError) else of_engine(raised)
                await body.write(self._failed(error))
            await body.end()
        finally:
            await comments.stop()
            making.cancel()
            await asyncio.wait({making})
            if not making.cancelled():
                making.exception()  # seen: it was raised already, or the client has left

    async def _make(self, unread: _Unread) -> None:
        """Make the parts.

        Raises:
            ApiError, LocalspecError: there are no more, or no memory for more.
        """
        try:
            async for part in self._parts:
                try:
                    unread.put(part)
                except ApiError as error:
                    await self._parts.athrow(error)
        finally:
            unread.end()
            await self._parts.aclose()


class _Unread:
    """The parts of an answer that its client has not read yet."""

    def __init__(self, share: Share | None) -> None:
        self._share = share
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._came = asyncio.Event()
        self._whole = False

    def put(self, part: bytes) -> None:
        """Add a part.

        Raises:
            ApiError: there is no memory for it.
        """
        self._grow(len(part))
        self._parts.append(part)
        self._came.set()

    def end(self) -> None:
        """Nothing follows."""
        self._whole = True
        self._came.set()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The parts, which are read when the next one is asked for."""
        while self._parts or not self._whole:
            if not self._parts:
                self._came.clear()
                await self._came.wait()
                continue
            yield self._parts[0]
            self._grow(-len(self._parts.popleft()))

    def _grow(self, size: int) -> None:
        if self._share is not None:
            self._share.stream(self._size + size)
        self._size += size


_NOTHING = {"type": "http.response.body", "body": b"", "more_body": True}


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
            if len(part) > FREE:
                await self._send(_NOTHING)  # waits for full buffers
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
