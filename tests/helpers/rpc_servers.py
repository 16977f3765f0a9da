"""Servers that answer as workers do, or do not."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """The address of a server that answers each connection so, and keeps it open until the end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                with contextlib.suppress(OSError):
                    answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


def worker(
    version: tuple[int, int, int],
    free: int = 8 << 30,
    devices: int = 1,
    total: int | None = None,
) -> Answer:
    """Answers the handshake as a worker of that version, with twice the memory that is free."""
    answers = {
        14: bytes((*version, 0)) + bytes(24),
        15: struct.pack("<I", devices),
        11: struct.pack("<QQ", free, 2 * free if total is None else total),
    }

    def answer(connection: socket.socket) -> None:
        while head := connection.recv(9, socket.MSG_WAITALL):
            command, length = struct.unpack("<BQ", head)
            if length:
                connection.recv(length, socket.MSG_WAITALL)
            said = answers[command]
            connection.sendall(struct.pack("<Q", len(said)) + said)

    return answer


def saying(text: bytes) -> Answer:
    """Says something at once, whoever comes, and reads what it is told."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(text)
        connection.recv(1 << 10)

    return answer


def closing(connection: socket.socket) -> None:
    """Ends every connection when it is told something, as workers of other versions do."""
    connection.recv(1 << 10)
    connection.shutdown(socket.SHUT_RDWR)


def silent(_: socket.socket) -> None:
    """Accepts, and says nothing."""
