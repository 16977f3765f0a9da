"""Damage to files and messages: by bytes, and by the values of a JSON or TOML text."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Collection, Sequence
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

MEMORY = 1 << 30
"""Bytes that a case may take beyond what the process has."""


class Chance(random.Random):
    """The source of chance of one case; it numbers the changes made, and leaves some out."""

    def __init__(self, seed: str, left_out: Collection[int] = ()) -> None:
        super().__init__(seed)
        self.changes: list[str] = []
        self._left_out = frozenset(left_out)
        self._number = 0

    def __new__(cls, seed: str, left_out: Collection[int] = ()) -> Chance:  # noqa: PYI034
        """`random.Random` takes one argument."""
        return super().__new__(cls, seed)

    def makes(self, change: str) -> bool:
        """Whether this change is made."""
        number = self._number
        self._number += 1
        if number in self._left_out:
            return False
        self.changes.append(change[:120])
        return True


def in_bytes(raw: bytes, chance: Chance) -> bytes:
    """Bits, fields, cuts, copies and insertions at a few places, most of them near the start."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not raw:
            break
        found = bytearray(raw)
        near = chance.random() < 0.8
        at = chance.randrange(min(len(found), 4096) if near else len(found))
        kind = chance.randrange(7)
        if kind == 0:
            found[at] ^= 1 << chance.randrange(8)
            change = f"byte {at} is {found[at]:#04x}"
        elif kind <= 2:
            field = chance.choice(FIELDS)
            found[at : at + len(field)] = field
            change = f"bytes from {at} are {field.hex()}"
        elif kind == 3:
            more = chance.randbytes(chance.choice((1, 2, 8, 100)))
            found[at:at] = more
            change = f"{len(more)} random bytes put in at {at}"
        elif kind == 4:
            size = chance.choice((1, 4, 8, 64, 4096))
            del found[at : at + size]
            change = f"{size} bytes from {at} taken out"
        elif kind == 5:
            end = at + chance.choice((8, 64, 512))
            to = chance.randrange(len(found))
            found[to:to] = found[at:end]
            change = f"bytes {at} to {end} once more at {to}"
        else:
            cut = chance.randrange(len(found))
            del found[cut:]
            change = f"cut at {cut}"
        if chance.makes(change):
            raw = bytes(found)
    return raw


def in_text(raw: bytes, chance: Chance) -> bytes:
    """Texts put in at a place, lines taken out or doubled, or bytes."""
    if chance.random() < 0.4:
        return in_bytes(raw, chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        lines = raw.split(b"\n")
        at = chance.randrange(len(lines))
        kind = chance.randrange(4)
        text = chance.choice((*TEXTS, *LITERALS)).encode("utf-8", "surrogatepass")
        if kind == 0:
            lines[at : at + 1] = []
            change = f"line {at} taken out"
        elif kind == 1:
            again = chance.randrange(len(lines))
            lines.insert(at, lines[again])
            change = f"line {again} once more at {at}"
        elif kind == 2 and b"=" in lines[at]:
            value = json.dumps(chance.choice(VALUES)).encode()
            lines[at] = lines[at].split(b"=", 1)[0] + b"= " + value
            change = f"line {at} is {lines[at][:80]!r}"
        else:
            place = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + text + lines[at][place:]
            change = f"{text[:40]!r} put in at line {at}, column {place}"
        if chance.makes(change):
            raw = b"\n".join(lines)
    return raw


def in_json(raw: bytes, chance: Chance) -> bytes:
    """Values of a JSON text exchanged, taken out, doubled or nested; or its bytes."""
    try:
        value = json.loads(raw)
    except ValueError:  # damaged before
        return in_bytes(raw, chance)
    if chance.random() < 0.25:
        return in_bytes(raw, chance)
    try:
        for _ in range(chance.choice((1, 1, 2, 4))):
            changed, change = _changed(copy.deepcopy(value), chance)
            if chance.makes(change):
                value = changed
        text = json.dumps(value, ensure_ascii=chance.random() < 0.8)
    except RecursionError:  # nested deeper than Python writes
        return b"[" * 5000 + raw + b"]" * 5000
    if chance.random() < 0.1:
        literal = chance.choice(LITERALS)
        found = text.replace(chance.choice(("1", "null", '"a"', "true")), literal, 1)
        if chance.makes(f"a value is {literal[:20]}"):
            text = found
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, chance: Chance) -> tuple[Any, str]:
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
        return copy.deepcopy(chance.choice(VALUES)), "all of it is another value"
    holder, key = chance.choice(places)
    kind = chance.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
        return value, f"{key!r} taken out"
    if kind == 1 and isinstance(holder, dict):
        name = chance.choice(TEXTS)
        holder[name] = holder[key]
        return value, f"{key!r} once more as {name[:20]!a}"
    if kind == 2:
        times = chance.choice((1, 50, 400))
        for _ in range(times):
            holder[key] = [holder[key]]
        return value, f"{key!r} in {times} lists"
    if kind == 3 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[:50]))
        return value, "a list is doubled"
    holder[key] = copy.deepcopy(chance.choice(VALUES))
    return value, f"{key!r} is {str(holder[key])[:40]!a}"
