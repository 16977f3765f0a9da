"""Listening: sockets that are bound here, uvicorn on them, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import ssl
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from localspec.core.errors import LocalspecError, UsageError
from localspec.serve.http.connections import protocol_with
from localspec.serve.http.settings import Limits, ServeSettings

_BACKLOG = 512
"""Connections that may wait in the kernel until they are accepted."""
_ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the loop. asyncio takes as many as may wait, goes on
taking in the turns until the first of them is counted, and those that make room for them are closed
after that: hundreds of descriptors that no limit has counted.
"""
_OTHER_DESCRIPTORS = 256 + 8 * _ACCEPTED_AT_ONCE
"""Descriptors beside those of counted connections: engines, files, processes that try out grammars,
and connections that were just accepted."""
_LONGEST_UNIX = 100
"""Bytes of the path of a Unix socket; systems take 104 to 108."""


def bind(settings: ServeSettings) -> socket.socket:
    """The socket of the settings, which listens from the moment on in which its address is taken:
    another server that comes then would not see it otherwise.

    Raises:
        UsageError: the address is invalid.
        LocalspecError: it is in use or not allowed.
    """
    if settings.unix is not None:
        return _bind_unix(settings.unix)
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"no such address: {host}; --host takes an address or a name") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _not_bound(f"{host}:{port}", error) from None
    return listener


def _bind_unix(path: Path) -> socket.socket:
    """A Unix socket that only its owner may open, from its first moment on."""
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("this system has no Unix sockets; use --host and --port")
    if len(os.fsencode(path)) > _LONGEST_UNIX:
        raise UsageError(f"the path of a Unix socket must be shorter than {_LONGEST_UNIX} bytes")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _not_bound(str(path), error) from None
    finally:
        os.umask(mask)
    return listener


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The file of a Unix socket, as it was when the socket was bound."""

    path: Path
    identity: tuple[int, int, int] | None

    @classmethod
    def at(cls, path: Path) -> Self:
        """The file that a socket was just bound to."""
        return cls(path, _identity(path))

    def remove(self) -> None:
        """Remove it. What another server has put in its place since then stays.

        Raises:
            LocalspecError: its folder allows that no more.
        """
        if self.identity is not None and _identity(self.path) == self.identity:
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                said = f"cannot remove the socket {self.path}: {error.strerror or error}"
                raise LocalspecError(f"{said}; make its folder writable, and remove it") from None


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What tells one file at a path from another; the time because numbers are used again."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended.

    Raises:
        UsageError: something else is there.
        LocalspecError: a server listens there, or that socket cannot be removed.
    """
    found = SocketFile.at(path)
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{path} is there already, and it is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            found.remove()
            return
        except OSError as error:
            raise _not_bound(str(path), error) from None
    raise LocalspecError(f"a server listens at {path} already; stop it, or choose another path")


def _not_bound(place: str, error: OSError) -> LocalspecError:
    if error.errno == errno.EADDRINUSE:
        return LocalspecError(f"{place} is in use by another program; choose another --port")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return LocalspecError(f"{place} is not allowed for this user; choose another address")
    return LocalspecError(f"cannot listen at {place}: {error.strerror or error}")


def tls_of(settings: ServeSettings) -> ssl.SSLContext | None:
    """The certificate and its key; None: plain HTTP.

    Raises:
        UsageError: one cannot be read, is none, or they do not belong together.
    """
    if settings.tls is None:
        return None
    certificate, key = settings.tls
    for path in settings.tls:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        raise UsageError(_why_no_tls(certificate, key, error)) from None
    return context


def _refuse_password() -> str:
    raise UsageError("the key of --tls-key is encrypted; use `openssl pkey -in FILE -out NEW`")


def _why_no_tls(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of {certificate}: --tls-cert and --tls-key belong together"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificate)
    except ssl.SSLError:
        return f"{certificate} is no certificate in PEM (--tls-cert)"
    return f"{key} is no key in PEM (--tls-key)"


class Listener(uvicorn.Server):
    """uvicorn's server, whose signals the command line handles."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._ending = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(_BACKLOG)
        self.listening.set()

    async def main_loop(self) -> None:
        """Wait for `stop`, and renew the Date header once a second. uvicorn's own loop wakes ten
        times a second.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop(self) -> None:
        """Take no more connections; running answers may end."""
        self.should_exit = True
        self._ending.set()

    def stop_now(self) -> None:
        """Drop running answers too."""
        self.should_exit = self.force_exit = True
        self._ending.set()


def with_descriptors(limits: Limits) -> Limits:
    """The limits with no more connections than this process can hold, which is first given as many
    descriptors as they need: one that cannot be accepted could not take the place of an idle one.
    """
    if sys.platform == "win32":  # which has no such limit
        return limits
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _OTHER_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    most = min(limits.connections, max(soft - _OTHER_DESCRIPTORS, soft // 2))
    share = min(limits.connections_of_one, most * 3 // 4)
    return replace(limits, connections=most, connections_of_one=share)


def listener(app: ASGIApp, settings: ServeSettings, *, grace: float) -> Listener:
    """A server for the application; ``grace`` is how many seconds running answers get when it
    stops.

    Raises:
        UsageError: as `tls_of`.
    """
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [logging.NullHandler()], False
        log.setLevel(logging.CRITICAL)
    limits = settings.limits
    config = uvicorn.Config(
        app,
        http=protocol_with(limits, tls_of(settings)),
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=math.ceil(grace),
        backlog=_ACCEPTED_AT_ONCE,
    )
    return Listener(config)
