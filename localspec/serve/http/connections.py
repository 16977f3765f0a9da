"""Connections: how many there are, how long each may take for what, and when they end."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ipaddress
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from localspec.serve.http.chunks import Chunks
from localspec.serve.http.errors import OPENAI, ApiError, bad_request, too_busy
from localspec.serve.http.half_closed import Probes, may_still_read
from localspec.serve.http.settings import Limits
from localspec.serve.http.sse import dumps


def _refusal(error: ApiError) -> bytes:
    """The answer that is an error and ends its connection, where no request was read."""
    body = dumps(OPENAI.body(error))
    headers = {
        "content-type": "application/json",
        "content-length": len(body),
        "connection": "close",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


_BUSY = _refusal(too_busy("too many connections; try again later"))
_NOT_HTTP = _refusal(bad_request("this is not a valid HTTP/1.1 request"))
_CRUMBS = _refusal(bad_request("the body has thousands of small chunks; send larger ones"))


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with time limits that it lacks, for the headers of a request and for
    clients that do not read; and with answers to clients that have ended their own side, whose
    connections uvicorn closes. TLS begins here too: asyncio would show connections after it only,
    and those that never agree on it would be outside of all limits.
    """

    limits = Limits()
    tls: ssl.SSLContext | None = None
    conn: Chunks

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = Chunks(config.h11_max_incomplete_event_size or 1 << 16)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._probes: Probes | None = None
        self.peer: str | None = None
        """Whose share it takes (`share_of` its address); None at a Unix socket."""
        self._agreeing: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = None if self.tls is None else []
        """What came until it was agreed on TLS; None from then on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it where there are too many."""
        stream = cast("asyncio.Transport", transport)
        self._use(stream)
        self.peer = share_of(self.client[0]) if self.client else None
        if not self._room():
            if self.tls is None:
                self.transport.write(_BUSY)
            self.transport.close()
            return
        self._watch()
        if self.tls is not None:
            self._agreeing = self.loop.create_task(self._agree(stream, self.tls))

    def _use(self, stream: asyncio.Transport) -> None:
        # Bytes of one turn of the loop: a quarter of asyncio's, and large bodies take no longer.
        stream.max_size = 1 << 16  # type: ignore[attr-defined]
        gathered = GatheredWrites(stream, self.loop, self._give_time)
        super().connection_made(cast("asyncio.Transport", gathered))

    async def _agree(self, stream: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Agree with the client on TLS, which the deadline of its first request ends too."""
        secured = None
        with contextlib.suppress(OSError):
            secured = await self.loop.start_tls(stream, self, tls, server_side=True)
        if secured is None or secured.is_closing():
            self.connection_lost(None)  # asyncio does not call it while TLS is agreed on
            return
        self._use(secured)
        early, self._early = self._early or [], None
        for data in early:
            self.data_received(data)

    def _room(self) -> bool:
        """Whether this connection may stay. Where there are too many, one that has sent no request
        makes room, the oldest of the peer that has the most of them; and no peer has more than its
        share, so that nobody keeps all others out.
        """
        others = [c for c in self.connections if isinstance(c, LimitedProtocol) and c is not self]
        ours = [other for other in others if other.peer == self.peer]
        if self.peer is not None and len(ours) >= self.limits.connections_of_one:
            return _end_one([other for other in ours if other.owes_request])
        if len(others) < self.limits.connections:
            return True
        idle = [other for other in others if other.owes_request]
        counts = collections.Counter(other.peer for other in idle)
        most = max(counts.values(), default=0)
        return _end_one([other for other in idle if counts[other.peer] == most])

    def since(self) -> float:
        """When it began to owe a request."""
        return self._deadline.when() if self._deadline is not None else 0.0

    @property
    def owes_request(self) -> bool:
        """Whether no request was sent, or the last one is answered."""
        return self._deadline is not None and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._early is not None:
            self._early.append(data)
            return
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.more_body and len(self.conn.trailing_data[0]) < _MOST:
            self.flow.resume_reading()  # behind the next request too the client's leaving is seen
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request; where an answer has begun already, only close.

        uvicorn's own method raises there, and its body is a text.
        """
        del msg
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.write(_CRUMBS if self.conn.too_many else _NOT_HTTP)
        self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with the next request of the connection."""
        super().on_response_complete()
        self._watch()
        if self._probes is not None and not self.eof_received():
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends nothing more; whether the connection stays for the rest of its answers.

        Called again where reading goes on, which says the same.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        # TLS has no half of a connection here.
        tls = self.transport.get_extra_info("ssl_object") is not None
        if cycle is None or tls or not may_still_read(cycle, self.conn):
            self.transport.close()  # asyncio would, without what was written in this turn
            return False
        if self._probes is None:
            self._probes = Probes(self.loop, self.transport, self.conn)
        self._probes.start(cycle)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection that has ended."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        self._deadline = self._stalled = None
        if self._probes is not None:
            self._probes.stop()

    def pause_writing(self) -> None:
        """The client's buffers and ours are full: it has a while to read."""
        super().pause_writing()
        self._give_time()

    def resume_writing(self) -> None:
        """The client reads."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self.transport.is_closing():
            self._give_time()

    def _give_time(self) -> None:
        """Disconnect the client in a while, unless it reads: what its buffers and ours are full of,
        or all that is left of a connection that is closed.
        """
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def _watch(self) -> None:
        """Run the deadline while the connection owes us the headers of a request.

        It is not put off by bytes that trickle in.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            return
        if self._deadline is None and not self.transport.is_closing():
            seconds = self.limits.header_seconds
            if cycle is not None:
                seconds += self.limits.idle_seconds
            self._deadline = self.loop.call_later(seconds, self.transport.abort)


def share_of(address: str) -> str:
    """Whom an address is counted for: one of IPv6 for its network of 64 bits, all of which one
    machine may have (RFC 4291, 2.5.1); one of IPv4 for itself, also where IPv6 writes it.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> 64 << 64))


def _end_one(idle: Sequence[LimitedProtocol]) -> bool:
    """End the connection that has waited longest; False where there is none."""
    if not idle:
        return False
    min(idle, key=LimitedProtocol.since).transport.abort()
    return True


def protocol_with(limits: Limits, tls: ssl.SSLContext | None) -> type[LimitedProtocol]:
    """The protocol for uvicorn, which makes one for each connection."""
    return type("Protocol", (LimitedProtocol,), {"limits": limits, "tls": tls})


_MOST = 1 << 16
"""Bytes that are gathered, and of requests that wait for the answer to the one before."""


class GatheredWrites:
    """A transport that sends what was written in one turn of the loop when it is over. The rest is
    the transport's own.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        closing: Callable[[], None],
    ) -> None:
        """``closing`` is called when it is closed, before all that was written has left."""
        self._transport = transport
        self._loop = loop
        self._closing = closing
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
        self._closing()
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
