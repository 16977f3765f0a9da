"""Reads the bytes of a GGUF header front to back, fetched in growing chunks.

Limits bound what a header may take, since it is not trusted: its bytes, the bytes of one text, the
number of values. They are several times what the largest known models have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from localspec.core.errors import ModelFileError

Fetch = Callable[[int, int], bytes]
"""``fetch(start, end)``: the bytes of that range, ``end`` not included."""

_SCALARS = {
    **dict(enumerate("BbHhIif?")),  # 8 is a text, 9 an array
    **dict(enumerate("Qqd", start=10)),
}
"""GGUF's value types as `struct` spells them."""
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MAX_KEY = 65535
LARGEST_HEADER = 64 << 20
"""Bytes; a vocabulary of 262,144 tokens with its merges takes 12 MB."""
LARGEST_TEXT = 4 << 20
"""Bytes of one text, such as a chat template."""
MOST_VALUES = 4 << 20
"""Entries of all arrays together; that vocabulary has 1.3 million with its merges."""
_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 18, 1 << 22
"""A header without a vocabulary fits into the first chunk; one with it has 2 to 12 MB."""

RawTensor = tuple[str, tuple[int, ...], int, int]
"""Name, shape, ggml type, offset."""


class Source:
    """A reader of the values of a header, in the order of the file."""

    def __init__(self, fetch: Fetch, size: int, name: str) -> None:
        self.position = 0
        self._fetch, self._size, self._name = fetch, size, name
        self._buffer, self._start = b"", 0
        self._chunk = _FIRST_CHUNK
        self._left = MOST_VALUES

    def damaged(self, why: str) -> ModelFileError:
        """The error for a damaged header."""
        return ModelFileError(f"{self._name} is cut short or damaged: {why}; fetch it again")

    def take(self, n: int) -> bytes:
        """The next ``n`` bytes."""
        at = self._ready(n)
        self.position += n
        return self._buffer[at : at + n]

    def _ready(self, n: int) -> int:
        """Buffer the next ``n`` bytes; returns where in the buffer they start."""
        at = self.position - self._start
        if at + n <= len(self._buffer):
            return at
        if self.position + n > self._size:
            raise self.damaged("it ends in the middle of its header")
        if self.position + n > LARGEST_HEADER:
            raise self.damaged(f"its header is larger than {LARGEST_HEADER >> 20} MB")
        have = self._start + len(self._buffer)
        limit = min(self._size, LARGEST_HEADER)
        end = min(limit, max(self.position + n, have + self._chunk))
        more = self._fetch(have, end)
        if len(more) != end - have:
            raise self.damaged("it ends in the middle of its header")
        self._buffer = self._buffer[at:] + more
        self._start = self.position
        self._chunk = min(2 * self._chunk, _LARGEST_CHUNK)
        return 0

    def number(self, code: str) -> int:
        """A little-endian integer."""
        value: int = struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]
        return value

    def count(self, least: int, most: int = LARGEST_HEADER) -> int:
        """A 64-bit count of items of at least ``least`` bytes each, at most ``most`` of them.

        Raises:
            ModelFileError: the file is too small for that many items, or there are too many.
        """
        n = self.number("Q")
        if n > most or n * least > self._size - self.position:
            raise self.damaged(f"it states {n} entries")
        return n

    def _text(self) -> bytes:
        """A text of the metadata."""
        n = self.count(1)
        if n > LARGEST_TEXT:
            raise self.damaged(f"it has a text of {n} bytes")
        return self.take(n)

    def _values(self, least: int) -> int:
        """The length of an array of values of at least ``least`` bytes."""
        n = self.count(least)
        self._left -= n
        if self._left < 0:
            raise self.damaged(f"it has more than {MOST_VALUES} values")
        return n

    def key(self) -> str:
        """A key or a tensor name."""
        n = self.count(1)
        if n > _MAX_KEY:
            raise self.damaged(f"it has a name of {n} bytes")
        name = self.take(n).decode("utf-8", "replace")
        if "\0" in name:  # where llama.cpp's ends: it would be another one's
            raise self.damaged(f"it has the name {name!a}")
        return name

    def value(self, kind: int) -> object:
        """A value of one of GGUF's types."""
        if kind == _STRING:
            return self._text().decode("utf-8", "replace")
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise self.damaged(f"it holds a value of an unknown type ({kind})")
        scalar: object = struct.unpack("<" + _SCALARS[kind], self.take(_width(kind)))[0]
        return scalar

    def _array(self) -> tuple[object, ...]:
        kind = self.number("I")
        if kind == _STRING:
            return tuple([self._text() for _ in range(self._values(8))])
        if kind not in _SCALARS:  # arrays of arrays exist in the format, but in no file
            raise self.damaged(f"it holds an array of an unknown type ({kind})")
        n = self._values(_width(kind))
        return struct.unpack(f"<{n}{_SCALARS[kind]}", self.take(n * _width(kind)))

    def tensor(self) -> RawTensor:
        """One entry of the tensor list."""
        name, dimensions = self.key(), self.number("I")
        if dimensions > _MAX_DIMENSIONS:
            raise self.damaged(f"tensor {name!r} has {dimensions} dimensions")
        # Without dimensions it is one value, which llama.cpp sees as one dimension too.
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions)) or (1,)
        return name, shape, self.number("I"), self.number("Q")


def _width(kind: int) -> int:
    return struct.calcsize("<" + _SCALARS[kind])
