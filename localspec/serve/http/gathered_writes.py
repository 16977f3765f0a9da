"""Writes that belong together leave in one piece: a status and the beginning of its body, the last
event of a stream and its end. Each write of a socket is a call of the system, which costs more than
making what is written.
"""

from __future__ import annotations

import asyncio
from typing import Any

_MOST = 1 << 16
"""Bytes that are gathered."""


class GatheredWrites:
    """A transport that sends what was written in one turn of the loop when it is over. The rest is
    the transport's own.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Send bytes, in their order."""
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self._flush()

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        """Send what was written, then end this side."""
        self._flush()
        self._transport.write_eof()

    def get_write_buffer_size(self) -> int:
        """Bytes that are not with the system yet."""
        return self._size + self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
