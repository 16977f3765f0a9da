"""What an ELF library has the loader look for: names of other libraries, and folders for them.

Source: the System V ABI, chapter 5 (program header, dynamic section); ld.so(8).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import LocalspecError

_MAGIC = b"\x7fELF\x02"
"""The beginning of a library of 64 bits; the loader opens no others in a process of 64 bits."""
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29


@dataclass(frozen=True, slots=True)
class Searched:
    """What is looked for when a library is loaded."""

    names: tuple[str, ...] = ()
    """Libraries that it needs; one with a slash is a path."""
    folders: tuple[str, ...] = ()
    """Folders that it names for them, as written: with $ORIGIN, or relative to the working
    directory, which "" is."""


def searched(file: Path) -> Searched:
    """What a library has the loader look for; nothing where the file is no ELF library.

    Raises:
        LocalspecError: it is damaged.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            return Searched()
        try:
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _searched(data)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise LocalspecError(f"{file} is no whole library: {error}") from None


def _searched(data: mmap.mmap) -> Searched:
    order = "<" if data[5] == 1 else ">"
    (table,) = struct.unpack_from(f"{order}Q", data, 32)
    size, count = struct.unpack_from(f"{order}HH", data, 54)
    segments = [
        struct.unpack_from(f"{order}IIQQQQ", data, table + i * size) for i in range(count)
    ]  # kind, flags, offset, address, physical address, bytes of the file
    found: dict[int, list[int]] = {}
    for kind, _, offset, _, _, n_bytes in segments:
        if kind == _DYNAMIC:
            if offset + n_bytes > len(data):
                raise ValueError("it is cut short")
            entries = data[offset : offset + n_bytes - n_bytes % 16]
            for tag, value in struct.iter_unpack(f"{order}qQ", entries):
                if tag == 0:
                    break
                found.setdefault(tag, []).append(value)
    if not found.keys() & {_NEEDED, _RPATH, _RUNPATH}:
        return Searched()
    strings = found[_STRINGS][0] if _STRINGS in found else -1
    start = next(
        (
            at + strings - address
            for kind, _, at, address, _, n in segments
            if kind == _LOAD and 0 <= strings - address < n
        ),
        None,
    )
    if start is None:
        raise ValueError("its strings are not in it")

    def text(at: int) -> str:
        if (end := data.find(b"\0", start + at)) < 0:
            raise ValueError("a string in it has no end")
        return data[start + at : end].decode("utf-8", "surrogateescape")

    # A library with a RUNPATH has its RPATH passed over; to look at both is no loss.
    ways = [text(at) for tag in (_RPATH, _RUNPATH) for at in found.get(tag, ())]
    folders = (folder for way in ways if way for folder in way.split(":"))
    return Searched(tuple(map(text, found.get(_NEEDED, ()))), tuple(folders))
