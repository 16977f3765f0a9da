"""Addresses of workers, as users write them: HOST:PORT, several separated by commas."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from localspec.core.errors import UsageError, WorkerError

DEFAULT_PORT = 50052
"""The port of llama.cpp's own rpc-server, too."""
MOST = 16
"""Workers that llama.cpp takes (GGML_RPC_MAX_SERVERS)."""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one worker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """The form HOST:PORT, which users write."""
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """The address in a text; without a port it is `DEFAULT_PORT`.

        Raises:
            UsageError: it is no address.
        """
        host, colon, port = text.strip().partition(":")
        if ":" in port or host.startswith("["):
            raise UsageError(
                f"{text.strip()!r} is not an address of a worker: llama.cpp's RPC takes IPv4 "
                "addresses and names only"
            )
        if not _HOST.fullmatch(host):
            raise UsageError(
                f"{text.strip()!r} is not an address of a worker; write HOST:PORT, as in "
                f"192.168.1.20:{DEFAULT_PORT}"
            )
        if not colon:
            return cls(host, DEFAULT_PORT)
        if not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 1 << 16:
            raise UsageError(f"the port of {text.strip()!r} must be between 1 and 65535")
        return cls(host, int(port))

    def resolved(self) -> Endpoint:
        """The same with the IPv4 address of its name, for llama.cpp, which aborts on unknown names.

        Raises:
            WorkerError: the name is not known, or has no IPv4 address.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise WorkerError(
                f"no machine with an IPv4 address has the name {self.host}; check {self}"
            ) from None
        return Endpoint(str(found[0][4][0]), self.port)


def endpoints(text: str | None) -> tuple[Endpoint, ...]:
    """The workers of a setting; none for None, nothing and ``none``.

    Raises:
        UsageError: one of them is no address, is named twice, or they are too many.
    """
    if text is None or text.strip() in {"", "none"}:
        return ()
    found = tuple(Endpoint.parse(part) for part in text.split(","))
    for endpoint in found:
        if found.count(endpoint) > 1:
            raise UsageError(f"the worker {endpoint} is named twice")
    if len(found) > MOST:
        raise UsageError(f"{len(found)} workers are named, and llama.cpp takes {MOST} at most")
    return found
