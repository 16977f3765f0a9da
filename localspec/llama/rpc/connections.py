"""The sockets that native code has opened in this process, found by their addresses.

llama.cpp sets neither keep-alive nor a time limit on its RPC connections: a machine that loses its
power would be waited for without end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator

from localspec.core.endpoint import Endpoint

_DESCRIPTORS = 1024
_IDLE_S, _INTERVAL_S, _PROBES = 15, 5, 4
"""A machine that has vanished is noticed after 35 s of silence."""


def to(endpoints: Iterable[Endpoint]) -> Iterator[socket.socket]:
    """The connections to these numeric addresses, each as a socket of its own: closing it leaves
    the connection open.
    """
    wanted = {(endpoint.host, endpoint.port) for endpoint in endpoints}
    yield from _where(lambda found: found.getpeername()[:2] in wanted)


def open_to(endpoints: Iterable[Endpoint]) -> Iterator[Endpoint]:
    """Those of the numeric addresses whose other end has not closed the connection."""
    for endpoint in endpoints:
        found = [*map(_open, to([endpoint]))]
        if found and all(found):
            yield endpoint


def _open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def accepted_at(port: int) -> Iterator[socket.socket]:
    """The connections that this process accepted at a port, as in `to`."""

    def accepted(found: socket.socket) -> bool:
        return bool(found.getsockname()[1] == port and found.getpeername())

    yield from _where(accepted)


def keep_alive(found: socket.socket, unread_s: int | None = None) -> None:
    """Let the system end a connection to a machine that has vanished; with ``unread_s``, also one
    on which sent bytes are not acknowledged for that many seconds.
    """
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": _IDLE_S,
        "TCP_KEEPALIVE": _IDLE_S,  # macOS's name for it
        "TCP_KEEPINTVL": _INTERVAL_S,
        "TCP_KEEPCNT": _PROBES,
    }
    if unread_s is not None:
        values["TCP_USER_TIMEOUT"] = 1000 * unread_s
    for name, value in values.items():
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.IPPROTO_TCP, option, value)


def _where(matches: Callable[[socket.socket], bool]) -> Iterator[socket.socket]:
    for descriptor in range(3, _DESCRIPTORS):
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            found = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with found, contextlib.suppress(OSError, IndexError):
            if found.family == socket.AF_INET and matches(found):
                yield found
