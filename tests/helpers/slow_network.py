"""A TCP proxy that delays, stalls or cuts connections."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

_PART = 1 << 16
_QUEUED = 1 << 10
"""Parts under way in one direction; a sender then waits, as on a full link."""


@dataclass(slots=True)
class Traffic:
    """Bytes that went through a proxy."""

    to_server: int = 0
    """Bytes."""
    to_client: int = 0
    """Bytes."""
    connections: int = 0


@dataclass(slots=True)
class Proxy:
    """Passes connections to a server on, each part ``delay_s`` later: a round trip takes twice that
    longer, and the bandwidth stays.
    """

    server: tuple[str, int]
    delay_s: float = 0.0
    traffic: Traffic = field(default_factory=Traffic)
    _listener: socket.socket = field(default_factory=socket.socket)
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _flows: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Listen on a free port of this machine."""
        self._flows.set()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        """End all connections, and listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        connections = self._open[:]
        self.cut()
        self._flows.set()
        for thread in self._threads:
            thread.join()
        for connection in connections:
            connection.close()

    @property
    def name(self) -> str:
        """HOST:PORT, where it listens."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """End all connections now; new ones are accepted."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Pass nothing on from now on, and end nothing."""
        self._flows.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            self.traffic.connections += 1
            for connection in (client, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
            self._pass_on(client, server, up=True)
            self._pass_on(server, client, up=False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        parts: queue.Queue[tuple[float, bytes]] = queue.Queue(_QUEUED)
        self._start(self._read, source, parts)
        self._start(self._write, sink, parts, up)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _read(self, source: socket.socket, parts: queue.Queue[tuple[float, bytes]]) -> None:
        while True:
            try:
                part = source.recv(_PART)
            except OSError:
                part = b""
            parts.put((time.monotonic() + self.delay_s, part))
            if not part:
                return

    def _write(
        self, sink: socket.socket, parts: queue.Queue[tuple[float, bytes]], up: bool
    ) -> None:
        while True:
            due, part = parts.get()
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            self._flows.wait()
            if not part:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_RDWR)
                return
            if up:
                self.traffic.to_server += len(part)
            else:
                self.traffic.to_client += len(part)
            with contextlib.suppress(OSError):
                sink.sendall(part)
