"""The beginning of llama.cpp's RPC protocol, spoken in Python.

llama.cpp's own client has no time limits, and aborts the process where nothing listens or the
other side is of another version. So every worker is asked here first, with a time limit; what is
wrong with it is an error that names it.

Source: ggml-rpc.cpp of the pinned llama.cpp. A request is one byte for the command, the length of
its data as 8 bytes, and the data; an answer is its length as 8 bytes, and the data. All numbers are
little-endian.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Self

from localspec.core.endpoint import Endpoint
from localspec.core.errors import WorkerError

PATIENCE_S = 10.0
"""Time limit of the whole handshake. A worker that serves somebody else lets others wait."""
_HELLO, _DEVICE_COUNT, _DEVICE_MEMORY = 14, 15, 11
_CAPABILITIES = 24
"""Bytes of the hello, about other transports than TCP; zeros are none."""
_MOST_DEVICES = 64
ADVICE = "start `localspec worker` there"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of the RPC protocol."""

    major: int
    minor: int
    patch: int
    """Raised with the numbering of operations, which both sides must share."""

    def __str__(self) -> str:
        """The form MAJOR.MINOR.PATCH, which llama.cpp prints."""
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """Memory of one device of a worker, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that answered."""

    endpoint: Endpoint
    version: Version
    devices: tuple[RemoteMemory, ...]

    def require(self, version: Version) -> None:
        """Check that it speaks our version of the protocol.

        Raises:
            WorkerError: it does not; both are named.
        """
        if self.version != version:
            raise WorkerError(
                f"the worker at {self.endpoint} speaks version {self.version} of llama.cpp's RPC, "
                f"and this localspec version {version}; install the same localspec on both"
            )


def ask(
    endpoint: Endpoint, patience: float = PATIENCE_S, *, version: Version | None = None
) -> Worker:
    """The version and devices of a worker. Takes three round trips. A worker of another version
    than ours is asked for no devices: it may end the connection at that.

    Raises:
        WorkerError: nothing listens there, it is no worker, it is of another version than
            ``version``, or it does not answer in time.
    """
    numeric = endpoint.resolved()
    try:
        with _Connection(numeric, patience) as connection:
            return connection.worker(endpoint, version)
    except ConnectionRefusedError:
        raise WorkerError(f"nothing listens at {endpoint}; {ADVICE}") from None
    except TimeoutError:
        raise WorkerError(
            f"no answer from {endpoint} within {patience:.0f} s: it is not reachable, serves "
            "another client (one at a time), or is not a worker"
        ) from None
    except _NoWorkerError as error:
        raise WorkerError(f"{endpoint} is not a worker of this version: {error}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkerError(f"cannot reach the worker at {endpoint}: {reason}; {ADVICE}") from None


class _NoWorkerError(Exception):
    """The peer that answered does not speak the protocol."""


class _Connection:
    """One connection, with a time limit for all that is said on it."""

    def __init__(self, endpoint: Endpoint, patience: float) -> None:
        self._until = time.monotonic() + patience
        self._socket = socket.create_connection((endpoint.host, endpoint.port), patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def worker(self, endpoint: Endpoint, ours: Version | None) -> Worker:
        """Say hello, compare the versions, and ask for the devices."""
        said = self._ask(_HELLO, bytes(_CAPABILITIES), 4 + _CAPABILITIES)
        version = Version(said[0], said[1], said[2])
        if ours is not None:
            Worker(endpoint, version, ()).require(ours)
        (count,) = struct.unpack("<I", self._ask(_DEVICE_COUNT, b"", 4))
        if not 0 < count <= _MOST_DEVICES:
            raise _NoWorkerError(f"it reports {count} devices")
        devices = tuple(self._memory(i) for i in range(count))
        return Worker(endpoint, version, devices)

    def _memory(self, i: int) -> RemoteMemory:
        said = self._ask(_DEVICE_MEMORY, struct.pack("<I", i), 16)
        free, total = struct.unpack("<QQ", said)
        # Vulkan says so of a card that is more than full.
        return RemoteMemory(free if free <= total else 0, total)

    def _ask(self, command: int, data: bytes, expected: int) -> bytes:
        """The answer to a request; its length is known."""
        self._limit()
        self._socket.sendall(struct.pack("<BQ", command, len(data)) + data)
        (length,) = struct.unpack("<Q", self._receive(8))
        if length != expected:
            raise _NoWorkerError("its answers are not those of llama.cpp's RPC")
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._limit()
            part = self._socket.recv(count - len(parts))
            if not part:
                raise _NoWorkerError("it closed the connection")
            parts += part
        return bytes(parts)

    def _limit(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
