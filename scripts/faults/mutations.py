"""Damage to files and messages: by bytes, and by the values of a JSON or TOML text."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

NUMBERS = (0, 1, 2, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 33, (1 << 63) - 1)
FIELDS = [struct.pack("<I", n & 0xFFFFFFFF) for n in NUMBERS]
FIELDS += [struct.pack("<Q", n) for n in NUMBERS] + [b"\xff" * 8, b"\0" * 8, struct.pack("<f", -1)]
FIELDS += [struct.pack("<f", float("nan")), struct.pack("<d", float("inf"))]
TEXTS = (
    "", "\0", "\x1b]52;c;aGk=\x07", "\u202e", "\ud800", "a" * 5000, "../../etc/passwd", "/",
    "~root", "~nobody-of-that-name/x", "%s%n", "null",
    "\n\n", "-1", "1e999", "🙂" * 50, "[" * 2000, "a\0b",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**400, 0.5, -0.0, 1e300,
    -1e300, [], {}, [[]], [None], {"": None}, "inf", "-inf", *TEXTS,
)  # fmt: skip
LITERALS = (
    "1e999", "-1e999", "NaN", "Infinity", "9" * 5000, "[" * 3000 + "]" * 3000, "tru", '"\\ud8',
)  # fmt: skip
Mutator = Callable[[bytes, random.Random], bytes]


def in_bytes(raw: bytes, chance: random.Random) -> bytes:
    """Bits, fields, cuts, copies and insertions at a few places, most of them near the start."""
    found = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not found:
            break
        near = chance.random() < 0.8
        at = chance.randrange(min(len(found), 4096) if near else len(found))
        kind = chance.randrange(7)
        if kind == 0:
            found[at] ^= 1 << chance.randrange(8)
        elif kind <= 2:
            field = chance.choice(FIELDS)
            found[at : at + len(field)] = field
        elif kind == 3:
            found[at:at] = chance.randbytes(chance.choice((1, 2, 8, 100)))
        elif kind == 4:
            del found[at : at + chance.choice((1, 4, 8, 64, 4096))]
        elif kind == 5:
            end = at + chance.choice((8, 64, 512))
            to = chance.randrange(len(found))
            found[to:to] = found[at:end]
        else:
            del found[chance.randrange(len(found)) :]
    return bytes(found)


def in_text(raw: bytes, chance: random.Random) -> bytes:
    """Texts put in at a place, lines taken out or doubled, or bytes."""
    if chance.random() < 0.4:
        return in_bytes(raw, chance)
    lines = raw.split(b"\n")
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        kind = chance.randrange(4)
        text = chance.choice((*TEXTS, *LITERALS)).encode("utf-8", "surrogatepass")
        if kind == 0:
            lines[at : at + 1] = []
            lines = lines or [b""]
        elif kind == 1:
            lines.insert(at, lines[chance.randrange(len(lines))])
        elif kind == 2 and b"=" in lines[at]:
            value = json.dumps(chance.choice(VALUES)).encode()
            lines[at] = lines[at].split(b"=", 1)[0] + b"= " + value
        else:
            place = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + text + lines[at][place:]
    return b"\n".join(lines)


def in_json(raw: bytes, chance: random.Random) -> bytes:
    """Values of a JSON text exchanged, taken out, doubled or nested; or its bytes."""
    if chance.random() < 0.25:
        return in_bytes(raw, chance)
    value = json.loads(raw)
    try:
        for _ in range(chance.choice((1, 1, 2, 4))):
            value = _changed(value, chance)
        text = json.dumps(value, ensure_ascii=chance.random() < 0.8)
    except RecursionError:  # nested deeper than Python writes
        return b"[" * 5000 + raw + b"]" * 5000
    if chance.random() < 0.1:
        literal = chance.choice(LITERALS)
        text = text.replace(chance.choice(("1", "null", '"a"', "true")), literal, 1)
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, chance: random.Random) -> Any:
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        found = waiting.pop()
        keys: Sequence[Any] = ()
        if isinstance(found, dict):
            keys = list(found)
        elif isinstance(found, list):
            keys = range(len(found))
        places += [(found, key) for key in keys]
        waiting += [found[key] for key in keys]
    if not places:
        return copy.deepcopy(chance.choice(VALUES))
    holder, key = chance.choice(places)
    kind = chance.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[chance.choice(TEXTS)] = holder[key]
    elif kind == 2:
        deep = holder[key]
        for _ in range(chance.choice((1, 50, 400))):
            deep = [deep]
        holder[key] = deep
    elif kind == 3 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[:50]))
    else:
        holder[key] = copy.deepcopy(chance.choice(VALUES))
    return value
