"""A time limit on what native code waits for from workers.

llama.cpp waits for an answer without end. A thread looks at the clock while such a wait runs; when
the limit is over it shuts the connections down, on which llama.cpp aborts the process, as it does
where a worker dies. The process that supervises this one then says what happened.

The sockets that native code has opened are found by their addresses. llama.cpp sets no keep-alive
on them either: a machine that loses its power would be waited for without end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from localspec.core.endpoint import Endpoint
from localspec.core.processes.crash import GONE, SILENT

_DESCRIPTORS = 1024
_IDLE_S, _INTERVAL_S, _PROBES = 15, 5, 4
"""A machine that has vanished is noticed after 35 s of silence."""

FIRST_S = 300.0
"""Limit of a wait whose length cannot be known: the first pass, or sending one tensor."""
_LEAST_S = 30.0
_TIMES_USUAL = 10.0
"""A pass may take this many times as long as the slowest one of its kind so far."""
_NARROW = 64
"""Rows; reading the weights is most of a pass that is not wider."""
_TICK_S = 0.5
_GRACE_S = 5.0
"""Seconds after which the process is ended where llama.cpp does not end it."""


def connections_to(endpoints: Iterable[Endpoint]) -> Iterator[socket.socket]:
    """The connections to these numeric addresses, each as a socket of its own: closing it leaves
    the connection open.
    """
    wanted = {(endpoint.host, endpoint.port) for endpoint in endpoints}
    yield from _where(lambda found: found.getpeername()[:2] in wanted)


def accepted_at(port: int) -> Iterator[socket.socket]:
    """The connections that this process accepted at a port, as in `connections_to`."""

    def accepted(found: socket.socket) -> bool:
        return bool(found.getsockname()[1] == port and found.getpeername())

    yield from _where(accepted)


def _open_to(endpoints: Iterable[Endpoint]) -> Iterator[Endpoint]:
    """The numeric addresses whose other end has not closed the connection."""
    for endpoint in endpoints:
        found = [*map(_open, connections_to([endpoint]))]
        if found and all(found):
            yield endpoint


def _open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


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


@dataclass(slots=True)
class _Usual:
    """The longest passes so far: seconds of a narrow one, seconds for a row of a wide one."""

    narrow: float = 0.0
    wide: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        if rows <= _NARROW:
            self.narrow = max(self.narrow, seconds)
        else:
            self.wide = max(self.wide, seconds / rows)

    def limit(self, rows: int) -> float:
        """Most seconds for a pass over that many rows; 0: a call that computes none."""
        if 0 < rows <= _NARROW and self.narrow:
            return max(_LEAST_S, _TIMES_USUAL * self.narrow)
        if rows > _NARROW and self.wide:
            return max(_LEAST_S, _TIMES_USUAL * self.wide * rows)
        return max(FIRST_S, _TIMES_USUAL * self.narrow * rows / _NARROW)


class Watch:
    """Watches the waits of one process for its workers, one at a time."""

    def __init__(
        self,
        named: tuple[Endpoint, ...],
        limit: float | None = None,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        """``named`` as users wrote them; ``limit`` in seconds, None: by what was measured.
        ``give_up`` ends the wait, None: as the module says.
        """
        self._workers = named
        self._numeric = tuple(endpoint.resolved() for endpoint in named)
        self._fixed = limit
        self._give_up = give_up or self._end
        self._usual = _Usual()
        self._rows = 0
        """Rows that were sent since the last answer."""
        self._spent = 0.0
        """Seconds of waits since then."""
        self._since: float | None = None
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def waiting(self, rows: int = 0) -> Iterator[None]:
        """Watch a call that may wait: one that sends that many rows, or, with 0, any other. The
        answer to the rows may come in a later one.
        """
        self._rows += rows
        self._since = began = time.monotonic()
        self._start()
        try:
            yield
        finally:
            self._since = None
            self._spent += time.monotonic() - began

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Watch a call that returns when all rows that were sent are answered."""
        with self.waiting():
            yield
        if self._rows:
            self._usual.add(self._rows, self._spent)
        self._rows, self._spent = 0, 0.0

    def connected(self) -> None:
        """llama.cpp has opened its connections."""
        for connection in connections_to(self._numeric):
            keep_alive(connection)

    def aborting(self, message: bytes) -> None:
        """llama.cpp gives up with this message: say which workers have gone."""
        _say(message.decode("utf-8", "replace"))
        if b"rpc" not in message.lower():  # of something else
            return
        here = set(_open_to(self._numeric))
        gone = [w for w, at in zip(self._workers, self._numeric, strict=True) if at not in here]
        if gone:
            _say(f"{GONE}{_names(gone)}")

    def heard(self) -> None:
        """Something was answered meanwhile: the limit starts again."""
        if self._since is not None:
            self._since = time.monotonic()

    @property
    def limit(self) -> float:
        """Seconds that the present wait may take."""
        return self._usual.limit(self._rows) if self._fixed is None else self._fixed

    @property
    def late(self) -> bool:
        """Whether a wait has taken as long as it may."""
        since = self._since
        return since is not None and time.monotonic() - since > self.limit

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="workers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(min(_TICK_S, self.limit / 4))
            if self.late:
                self._give_up()
                return

    def _end(self) -> None:
        _say(f"{SILENT}{_names(self._workers)} for {self.limit:.0f} s")
        for connection in connections_to(self._numeric):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        time.sleep(_GRACE_S)
        os.abort()


def _names(workers: Iterable[Endpoint]) -> str:
    return ", ".join(map(str, workers))


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())
