"""The lines of a streamed answer, and the events in them."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator

import httpx2

from localspec.core.errors import RemoteError
from localspec.engine.protocol import MAX_LINE
from localspec.remote.connection import Connection
from localspec.remote.faults import unreachable


class Lines(AsyncIterator[bytes]):
    """The lines of an answer without their ends; a last line without an end counts too."""

    def __init__(self, response: httpx2.Response, connection: Connection) -> None:
        """An answer that came by this connection."""
        self._chunks = response.aiter_raw().__aiter__()
        self._address, self._key = connection.address, connection.key
        patience = connection.patience
        self._seconds, self._later = patience.first, patience.later
        self._buffer = bytearray()
        self._searched = 0
        self._over = False

    async def __anext__(self) -> bytes:
        """The next line.

        Raises:
            RemoteError: the connection broke, nothing came for too long, or a line is too long.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line.removesuffix(b"\r")
            self._searched = len(self._buffer)
            if self._searched > MAX_LINE:
                raise RemoteError(
                    f"{self._address} sent a line of more than {MAX_LINE >> 20} MB, which is no "
                    "part of a reply"
                )
            if self._over:
                return self._last()
            await self._more()

    def _last(self) -> bytes:
        if not self._buffer:
            raise StopAsyncIteration
        line = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return line.removesuffix(b"\r")

    async def _more(self) -> None:
        """Read on."""
        try:
            async with asyncio.timeout(self._seconds):
                self._buffer += await anext(self._chunks)
        except StopAsyncIteration:
            self._over = True
        except TimeoutError:
            raise RemoteError(
                f"{self._address} has sent nothing for {self._seconds:.0f} s; is it still running?"
            ) from None
        except httpx2.HTTPError as error:
            raise unreachable(self._address, error, self._key) from None
        self._seconds = self._later


def content_type(response: httpx2.Response) -> str:
    """Its media type without parameters, in lower case; "" where it states none."""
    stated: str = response.headers.get("Content-Type", "")
    return stated.partition(";")[0].strip().lower()


async def whole(lines: AsyncIterator[bytes]) -> bytes:
    """An answer that comes in one piece.

    Raises:
        RemoteError: it is larger than any reply.
    """
    found, size = list[bytes](), 0
    async for line in lines:
        size += len(line) + 1
        if size > MAX_LINE:
            raise RemoteError(f"the server sent an answer of more than {MAX_LINE >> 20} MB")
        found.append(line)
    return b"\n".join(found)


async def server_sent(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html.

    Comments and other fields are left out; an event may have several lines of data. A line that is
    no field but looks like JSON is passed on: some servers report errors so.
    """
    data: list[bytes] = []
    size = 0
    first = True
    async for line in lines:
        if first:
            line, first = line.removeprefix(codecs.BOM_UTF8), False  # noqa: PLW2901
        if not line:
            if data:
                yield b"\n".join(data)
            data, size = [], 0
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            part = value.removeprefix(b" ")
            size += len(line) + 1  # an empty one takes its place too
            if size > MAX_LINE:
                raise RemoteError(f"the server sent an event of more than {MAX_LINE >> 20} MB")
            data.append(part)
        elif line.startswith(b"{") or name == b"error":
            yield value.strip() if name == b"error" else line
    if data:
        yield b"\n".join(data)
