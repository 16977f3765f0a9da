"""The standard streams, such that they wait.

Another program that has one of them open too may have set it not to wait. Then reading would end
before what is not written yet, and writing fail where the reader is slow. We do not set it back: it
would stay so for the other program, which may rely on it.
"""

from __future__ import annotations

import io
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class WaitingFile(io.FileIO):
    """A file that is waited for, also where it does not wait itself."""

    def write(self, part: ReadableBuffer, /) -> int:
        """Write at least a byte."""
        while (written := super().write(part)) is None:
            select.select([], [self], [])
        return written

    def readinto(self, room: WriteableBuffer, /) -> int:
        """Read at least a byte; none at the end."""
        while (found := super().readinto(room)) is None:
            select.select([self], [], [])
        return found

    def readall(self) -> bytes:
        """All until the end."""
        found, room = bytearray(), bytearray(1 << 16)
        while n := self.readinto(room):
            found += room[:n]
        return bytes(found)


def waiting(stream: TextIO) -> TextIO:
    """A stream that waits, in place of one of a file."""
    reads = stream.readable()
    raw = WaitingFile(stream.fileno(), "r" if reads else "w", closefd=False)
    raw.name = stream.name
    return io.TextIOWrapper(
        io.BufferedReader(raw) if reads else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        # Python writes through to a file that has no buffer; this one has.
        line_buffering=bool(stream.line_buffering) or getattr(stream, "write_through", False),
    )


def wait() -> None:
    """Have all three wait from now on."""
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, waiting(getattr(sys, name)))
