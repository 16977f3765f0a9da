"""Clients that end their side of the connection after a request, and still read.

TCP says the same of them as of clients that are gone: that nothing more comes. Only bytes sent to
them tell: the system of a client that is gone resets the connection. So while nothing else is sent,
half-closed connections get bytes without meaning: interim answers (102) before the status, comments
within a stream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

FILLER_KEY = "localspec.filler"
"""Key in an ASGI scope of bytes that a reader of the answer's body skips."""
_PAUSES = (0.0, 0.02, 0.1, 0.5, 2.0)
"""Seconds between the first probes; the second one finds the reset that the first one caused."""
_LAST_PAUSE = 5.0


def may_still_read(cycle: RequestResponseCycle | None, connection: h11.Connection) -> bool:
    """Whether a client that sends nothing more may wait for the answer to a whole request, and can
    be asked. Clients of HTTP/1.0 know no interim answers.
    """
    if cycle is None or cycle.response_complete or cycle.more_body:
        return False
    return cycle.response_started or connection.their_http_version != b"1.0"


class Probes:
    """Sends such bytes, until the answer is complete or the connection is lost."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, conn: h11.Connection
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._conn = conn
        self._pauses: Iterator[float] = itertools.chain(_PAUSES, itertools.repeat(_LAST_PAUSE))
        self._timer: asyncio.TimerHandle | None = None

    def start(self, cycle: RequestResponseCycle) -> None:
        """Probe while this answer is made."""
        self.stop()
        self._timer = self._loop.call_later(next(self._pauses), self._probe, cycle)

    def stop(self) -> None:
        """Probe no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self, cycle: RequestResponseCycle) -> None:
        if cycle.response_complete or self._transport.is_closing():
            return
        event = _filler(cycle)
        if event is not None and not self._transport.get_write_buffer_size():
            self._transport.write(self._conn.send(event) or b"")
        self.start(cycle)


def _filler(cycle: RequestResponseCycle) -> Any:
    """An event that changes nothing at this point of an answer; None if there is none."""
    if not cycle.response_started:
        return h11.InformationalResponse(status_code=102, headers=[], reason=b"Processing")
    filler = cycle.scope.get(FILLER_KEY)
    return h11.Data(data=filler) if isinstance(filler, bytes) else None
