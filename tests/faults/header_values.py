"""Metadata of a GGUF header in which keys that we read have values of other types: numbers and
texts of every type, and arrays of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults.entries import command, fresh
from faults.model_files import HEADS, pair, small_gguf
from faults.mutations import Chance
from localspec.models.gguf import header as headers
from localspec.models.gguf.source import Source

_TEXT, _ARRAY, _BOOL = 8, 9, 7
_INTEGERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}
_FLOATS = {6: "f", 12: "d"}
_LENGTHS = (0, 1, 2, 3, 4)
"""Lengths of the arrays that are tried; the files here have two, three or four layers."""


def _scalars() -> Iterator[tuple[int, bytes]]:
    """Values with their types."""
    for kind, code in _INTEGERS.items():
        bits, signed = 8 * struct.calcsize(code), code.islower()
        ends = (-1, -(1 << bits - 1), (1 << bits - 1) - 1) if signed else ((1 << bits) - 1,)
        yield from ((kind, struct.pack("<" + code, n)) for n in (*ends, 0, 1))
    for kind, code in _FLOATS.items():
        for n in (math.nan, math.inf, -math.inf, 0.5, -1.0):
            yield kind, struct.pack("<" + code, n)
    yield from ((_BOOL, bytes([n])) for n in (0, 1))
    for text in (b"", b"x", b"7", b"\xff\0", b"\x1b[31m"):
        yield _TEXT, struct.pack("<Q", len(text)) + text


def values() -> Iterator[bytes]:
    """Values as a header stores them, their types in front."""
    for kind, raw in _scalars():
        yield struct.pack("<I", kind) + raw
        for n in _LENGTHS:
            yield struct.pack("<IIQ", _ARRAY, kind, n) + n * raw


VALUES = tuple(dict.fromkeys(values()))


def changed(raw: bytes, new: dict[str, bytes]) -> bytes:
    """A file with other metadata: `VALUES` by their keys."""
    version, tensors, found, listed, data = _parts(raw)
    found = found | new
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(found))
    for key, value in found.items():
        name = key.encode()
        head += struct.pack("<Q", len(name)) + name + value
    head += listed
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + data


@functools.lru_cache(maxsize=4)
def _parts(raw: bytes) -> tuple[int, int, dict[str, bytes], bytes, bytes]:
    """The version, the number of tensors, the metadata, the list of tensors and their data."""
    source = Source(lambda start, end: raw[start:end], len(raw), "a file")
    version, tensors, entries = headers._counts(source, len(raw), "a file")
    found: dict[str, bytes] = {}
    for _ in range(entries):
        key, start = source.key(), source.position
        source.value(source.number("I"))
        found[key] = raw[start : source.position]
    start = source.position
    for _ in range(tensors):
        source.tensor()
    data = -(-source.position // 32) * 32
    return version, tensors, found, raw[start : source.position], raw[data:]


def of_each_type(n: int) -> list[bytes]:
    """One value of each type, the oddest, and an array of ``n`` of them."""
    ones = dict(reversed([*_scalars()])) | {_TEXT: struct.pack("<Q", 1) + b"x"}
    found = [struct.pack("<I", kind) + raw for kind, raw in ones.items()]
    return found + [struct.pack("<IIQ", _ARRAY, kind, n) + n * raw for kind, raw in ones.items()]


class _Watched(dict[str, Any]):
    """Metadata that note which keys are asked for."""

    asked: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


@contextlib.contextmanager
def keys_read() -> Iterator[set[str]]:
    """The keys of metadata that are asked for meanwhile."""
    plain, asked = headers.MappingProxyType, set[str]()
    watched = type("_Noting", (_Watched,), {"asked": asked})
    headers.MappingProxyType = watched  # type: ignore[misc, assignment]
    try:
        yield asked
    finally:
        headers.MappingProxyType = plain  # type: ignore[misc]


def shown(folder: Path, target: bytes, draft: bytes | None) -> str | None:
    """What is wrong in how `show` reads these files, the draft named and as a neighbour."""
    (folder / "target.gguf").write_bytes(target)
    words = ["show", str(folder / "target.gguf"), "--json", "--offline"]
    if draft is None:
        return command(*words)
    (folder / "draft.gguf").write_bytes(draft)
    return command(*words, "--draft", str(folder / "draft.gguf")) or command(*words)


def files(kind: str) -> tuple[bytes, bytes | None]:
    """A target and its head of a kind, or the small model alone."""
    return pair(kind) if kind in HEADS else (small_gguf(), None)


KINDS = (*HEADS, "alone")


def header_values(chance: Chance, folder: Path) -> str | None:
    """One to three keys of a model or head with values of other types."""
    fresh(folder)
    target, draft = files(chance.choice(KINDS))
    for _ in range(chance.choice((1, 1, 2, 3))):
        with keys_read() as asked:
            if wrong := shown(folder, target, draft):
                return wrong
        key, value = chance.choice(sorted(asked)), chance.choice(VALUES)
        if not chance.makes(f"{key} is {value[:40].hex()}"):
            continue
        if draft is None or chance.random() < 0.5:
            target = changed(target, {key: value})
        else:
            draft = changed(draft, {key: value})
    return shown(folder, target, draft)
