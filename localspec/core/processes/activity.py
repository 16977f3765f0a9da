"""The current step of this process, stored where another process can read it after a crash.

Native code may end the process between two instructions; it cannot report anything then. So every
step that enters native code for long is named beforehand. `share` stores the names in memory that a
supervising process can read; each name costs a copy of a few bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap

SIZE = 1024
"""Bytes of shared memory that the names need."""
_LENGTH = 2
_OPEN = SIZE - 1
"""Index of the byte that says whether a line of output is unfinished."""
_ENDED = SIZE - 2
"""Index of the byte that says whether the end of the process is our own."""

_memory: bytearray | mmap.mmap = bytearray(SIZE)


def share(memory: mmap.mmap) -> None:
    """Store names in the first `SIZE` bytes of ``memory`` from now on."""
    global _memory  # noqa: PLW0603 - a process does one thing at a time
    _memory = memory


def doing(what: str) -> None:
    """Name the step that begins now, such as ``loading /models/a.gguf``."""
    raw = what.encode("utf-8", "replace")[: _ENDED - _LENGTH]
    _memory[:_LENGTH] = len(raw).to_bytes(_LENGTH, "little")
    _memory[_LENGTH : _LENGTH + len(raw)] = raw


def line_open(unfinished: bool) -> None:
    """Record whether the output ends within a line, so that a message must begin a new one."""
    _memory[_OPEN] = unfinished


def within_line() -> bool:
    """Whether the output of this process ends within a line."""
    return bool(_memory[_OPEN])


def ended() -> None:
    """Record that this process ends by our own code, and not by native code that calls exit()."""
    _memory[_ENDED] = True


class Last(NamedTuple):
    """What a process recorded before it ended."""

    doing: str
    """The last step; "" for none."""
    line_open: bool
    """Whether its output ends within a line."""
    ended: bool
    """Whether its end was our own."""


def last(memory: bytes | bytearray | mmap.mmap) -> Last:
    """What is recorded in ``memory``."""
    length = min(int.from_bytes(memory[:_LENGTH], "little"), _ENDED - _LENGTH)
    raw = bytes(memory[_LENGTH : _LENGTH + length])
    return Last(raw.decode("utf-8", "replace"), bool(memory[_OPEN]), bool(memory[_ENDED]))
