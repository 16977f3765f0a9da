"""Streams to a server of tools, with limits that the package ``mcp`` does not have: a message has a
largest size, and what a server writes to stderr is kept in part only.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from localspec.core import proxies
from localspec.core.hosts import is_here
from localspec.core.processes import children

LARGEST_MESSAGE = 8 << 20
"""Bytes."""
_CONNECTING = 15.0
"""Seconds to connect to an address."""
_KEPT_LINES = 8
_GRACE = 1.0
"""Seconds for a server to end by itself once its stdin is closed."""


class TooLargeError(Exception):
    """A message is larger than `LARGEST_MESSAGE`."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {LARGEST_MESSAGE >> 20} MB")


class Ending:
    """Why a connection ended, as far as its transport knows."""

    def __init__(self) -> None:
        self.reason = ""
        self.known = asyncio.Event()
        """Set once there is a reason."""
        self._words: deque[str] = deque(maxlen=_KEPT_LINES)

    def over(self, reason: str) -> None:
        """The connection has ended."""
        self.reason = self.reason or reason
        self.known.set()

    def note(self, line: str) -> None:
        """Keep a line of the server's stderr."""
        self._words.append(line[:300])

    @property
    def words(self) -> str:
        """The last line that the server wrote to stderr."""
        return next((line for line in reversed(self._words) if line.strip()), "")


@contextlib.asynccontextmanager
async def program(
    command: str, args: list[str], env: Mapping[str, str], cwd: str | None, ending: Ending
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Start a server and speak with it by its stdin and stdout, a message a line. It stays in our
    own session, so that whoever ends this process ends it too.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        command,
        *args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=get_default_environment() | dict(env),
        cwd=cwd,
        limit=LARGEST_MESSAGE,
    )
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        assert process.stdout is not None
        async with arrived:
            try:
                while line := await process.stdout.readline():
                    await arrived.send(_message(line))
            except ValueError:  # the stream's limit
                ending.over(str(TooLargeError()))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
                return
            if not ending.reason:
                ending.over(await _end_of(process))

    async def write() -> None:
        assert process.stdin is not None
        async with sent:
            with contextlib.suppress(ConnectionError, OSError):
                async for message in sent:
                    try:
                        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    except ValueError as error:  # half a character, for example
                        ending.over(f"a message to it cannot be written: {error}"[:200])
                        return
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()

    tasks = [asyncio.create_task(work) for work in (read(), write(), _words(process, ending))]
    try:
        yield incoming, outgoing
    finally:
        for task in tasks:
            task.cancel()
        await _end(process)


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError) as error:
        return ValueError(f"not a message of MCP: {error}"[:200])


async def _words(process: Process, ending: Ending) -> None:
    """Read stderr to its end: a full pipe would stop the server."""
    assert process.stderr is not None
    held = b""
    while piece := await process.stderr.read(65536):
        *lines, held = (held + piece).split(b"\n")
        for line in lines[-_KEPT_LINES:]:
            ending.note(line.decode("utf-8", "replace"))
        held = held[-300:]
    ending.note(held.decode("utf-8", "replace"))


async def _end_of(process: Process) -> str:
    try:
        status = await asyncio.wait_for(process.wait(), _GRACE)
    except TimeoutError:
        return "it closed its output"
    return f"it ended (exit status {status})" if status >= 0 else f"it ended (signal {-status})"


async def _end(process: Process) -> None:
    """Close its stdin, then end it."""
    if process.stdin is not None:
        process.stdin.close()
    await children.ended(process, _GRACE)


class _Counted(httpx2.AsyncByteStream):
    """The body of an answer, up to the largest message."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for piece in self._stream:
            taken += len(piece)
            if taken > LARGEST_MESSAGE:
                raise TooLargeError
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Bounded(httpx2.AsyncHTTPTransport):
    """Answers of a bounded size; streams of events are bounded one by one elsewhere."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            response.stream = _Counted(response.stream)
        return response


@contextlib.asynccontextmanager
async def address(
    url: str, headers: Mapping[str, str], seconds: float
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Speak with a server at an address by streamable HTTP, through the proxy of the environment;
    one for the network is none for this machine.

    Raises:
        LocalspecError: the environment names no usable proxy.
    """
    asked = httpx2.URL(url)
    proxy = None if is_here(asked.host) else proxies.proxy_of(asked)
    client = httpx2.AsyncClient(
        transport=_Bounded(proxy=proxy),
        headers=dict(headers),
        timeout=httpx2.Timeout(_CONNECTING, read=seconds + _CONNECTING),
    )
    async with (
        client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=LARGEST_MESSAGE
        ) as streams,
    ):
        yield streams
