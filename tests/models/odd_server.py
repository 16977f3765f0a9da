"""A server that sends the same bytes to everybody, and then nothing, or one more now and then."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
_PAUSE = 0.02


class OddServer:
    """It listens on loopback until the end of the context, and ends no connection before."""

    def __init__(self, said: bytes = b"", *, trickles: bool = False) -> None:
        self.said, self.trickles = said, trickles
        self.asked = 0
        """Requests that have arrived."""
        self._open: list[socket.socket] = []
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone
            if not client.recv(1 << 16):
                return
            self.asked += 1
            client.sendall(self.said)
            while self.trickles and not self._ended.wait(_PAUSE):
                client.sendall(b" ")
