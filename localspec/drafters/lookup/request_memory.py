"""A memory of earlier requests: finds what followed the last tokens of a text in the texts before.

Texts lie in a stream of tokens, separated by borders. A hash table without chains maps the last n
tokens before a place to that place, and a newer place replaces an older one, so that memory is
bounded and learning is a few array operations. Lookups compare the tokens themselves: a collision
of hashes, or a place of a text that is gone, costs a comparison and nothing else.

Two generations: texts go into the younger one, and once that is full the older one is begun anew in
the same arrays, which are not emptied: that would take long, and all replies wait. Passages that
the younger one has already are not stored again, which keeps a conversation that is sent with every
request from filling the memory, and those that only the older one has are: what is repeated stays.

What one owner wrote is never found for another, not even by accident: places have an owner, and the
hash of each owner has a secret of its own, so that nobody can replace a chosen place of another.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.lookup.place_table import Hashes, Places, PlaceTable
from localspec.drafters.lookup.suffix_index import LONGEST

SIZES = (16, 8)
"""Tokens that are hashed, the most first: a longer passage is found before a newer one."""
_SLOTS = 2
"""Slots of the table of one size for each token that there is room for."""
_FREE = 16
"""Slots of a table for each token, as long as there may be so many: few places are lost then."""
_PER_PLACE = 4 + 4
"""Bytes: the token and its owner."""
_PER_TOKEN = _PER_PLACE + 4 * _SLOTS * len(SIZES)
_GENERATIONS = 2
BORDER = -1
"""Separates texts; it is not a token."""
_PIECE = 4096
"""Tokens that are learnt at a time."""
_OWNERS = 256
"""Owners that are told apart at a time; the texts of those who wrote least lately are lost."""
_BASE = 0x9E3779B97F4A7C15
_MIX = 0xD6E8FEB86659FD93
_WORD = (1 << 64) - 1
_POWERS = {size: [pow(_BASE, size - 1 - i, 1 << 64) for i in range(size)] for size in SIZES}


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of an earlier request that agrees with the end of a text."""

    following: list[int]
    """The tokens after it; at least one."""
    length: int
    """Tokens that agree, up to `LONGEST`."""


@dataclass(frozen=True, slots=True)
class _Owner:
    number: int
    secret: int


class RequestMemory:
    """The texts of earlier requests, each for its owner alone; see the module."""

    def __init__(self, n_bytes: int) -> None:
        """``n_bytes`` is the most memory of all owners together; it is taken as texts come."""
        self._capacity = n_bytes // (_GENERATIONS * _PER_TOKEN)
        self._generations: list[_Generation] = []
        """The younger one first."""
        self._owners: dict[str, _Owner] = {}
        """Who wrote last comes last."""
        self._met = 0

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        return sum(generation.n_bytes for generation in self._generations)

    def learn(self, owner: str, tokens: Sequence[int]) -> None:
        """Take in a text of an owner. A piece at a time: its arrays then stay in the caches of the
        processor.
        """
        piece = min(_PIECE, self._capacity - LONGEST - 2)
        if len(tokens) <= SIZES[0] or piece <= SIZES[0]:
            return
        known = self._owner(owner)
        for start in range(0, len(tokens), piece):
            text = np.array(tokens[max(0, start - LONGEST) : start + piece], np.int32)
            if not self._generations or not self._generations[0].learn(text, known):
                self._begin()
                self._generations[0].learn(text, known)

    def _begin(self) -> None:
        """Make the older generation the younger one, without a text, or a new one."""
        if len(self._generations) < _GENERATIONS:
            self._generations.insert(0, _Generation(self._capacity))
        else:
            self._generations.insert(0, self._generations.pop())
            self._generations[0].begin()

    def recall(self, owner: str, text: Sequence[int], most: int) -> Passage | None:
        """The longest passage found that ends as ``text`` does, and at most ``most`` tokens after
        it; the newest of those of a length. None where nothing of the owner agrees.
        """
        known = self._owners.get(owner)
        if known is None or most <= 0:
            return None
        end = list(text[-LONGEST:])
        best = None
        for size in SIZES:
            if len(end) < size:
                continue
            code = _code(end[-size:], known)
            for generation in self._generations:
                found = generation.find(code, size, end, known)
                if found is not None and (best is None or found[1] > best[0][1]):
                    best = found, generation
            if best is not None:
                break
        if best is None:
            return None
        (at, length), generation = best
        return Passage(generation.following(at, most), length)

    def clear(self) -> None:
        """Forget everything."""
        self._generations = []
        self._owners = {}

    def _owner(self, name: str) -> _Owner:
        known = self._owners.pop(name, None)
        if known is None:
            self._met += 1
            known = _Owner(self._met, secrets.randbits(64))
        self._owners[name] = known
        if len(self._owners) > _OWNERS:
            del self._owners[next(iter(self._owners))]
        return known


class _Generation:
    """Texts of one age."""

    def __init__(self, capacity: int) -> None:
        """``capacity`` is the length of the stream, its borders included."""
        # Memory that nobody wrote to takes none; what is beyond the texts is never looked at.
        self._stream = np.empty(capacity, np.int32)
        self._stream[0] = BORDER
        self._owners = np.empty(capacity, np.int32)
        self._tables = {size: PlaceTable(_SLOTS * capacity) for size in SIZES}
        """Place of the token after the gram; 0, where a border is, is none."""
        self._used = self._most_used = 1
        # Single items of these are read at a fifth of the cost of those of an array.
        self._token, self._owner = self._stream.data, self._owners.data

    @property
    def n_bytes(self) -> int:
        tables = sum(table.n_bytes for table in self._tables.values())
        return tables + _PER_PLACE * self._most_used

    def begin(self) -> None:
        """Forget all texts. The tables keep their places, which others take one by one."""
        self._used = 1

    # -- lookups -------------------------------------------------------------------------------

    def find(
        self, code: int, size: int, end: Sequence[int], owner: _Owner
    ) -> tuple[int, int] | None:
        """(Place after the newest gram with that code, length of the match with ``end``)."""
        at, token = self._tables[size].place(code), self._token
        if not 0 < at < self._used or self._owner[at] != owner.number or token[at] == BORDER:
            return None
        length = 0
        for there in reversed(end):
            if token[at - 1 - length] != there:
                break
            length += 1
        return (at, length) if length >= size else None

    def following(self, at: int, most: int) -> list[int]:
        """At most ``most`` tokens from a place on, as far as its text goes."""
        found: list[int] = self._stream[at : at + most].tolist()
        return found[: found.index(BORDER)] if BORDER in found else found

    # -- learning ------------------------------------------------------------------------------

    def learn(self, text: NDArray[np.int32], owner: _Owner) -> bool:
        """Store the parts of a text that are new; False, with nothing stored, where they do not
        fit.
        """
        if len(text) <= SIZES[0]:
            return True
        codes = {size: _codes(text, size, owner) for size in SIZES}
        kept = self._worth_keeping(text, codes[SIZES[0]], owner)
        if not kept.any():
            return True
        begins = kept.copy()
        begins[1:] &= ~kept[:-1]
        n_parts = int(begins.sum())
        after = self._used + int(kept.sum()) + n_parts  # a border behind each part
        if after > len(self._stream):
            return False
        here = np.arange(len(text))
        to: Places = self._used - 1 + np.cumsum(kept) + np.cumsum(begins) - 1
        beginning = np.maximum.accumulate(np.where(begins, here, 0))
        self._stream[self._used : after] = BORDER
        self._stream[to[kept]] = text[kept]
        self._owners[self._used : after] = owner.number
        for size, table in self._tables.items():
            whole = kept[size:] & (here[size:] - beginning[size:] >= size)
            table.grow(_FREE * after)
            table.put(codes[size][whole], to[size:][whole])  # of equal ones the newest stays
        self._used, self._most_used = after, max(after, self._most_used)
        return True

    def _worth_keeping(
        self, text: NDArray[np.int32], codes: Hashes, owner: _Owner
    ) -> NDArray[np.bool_]:
        """(n,) whether a token of the text is stored: those that do not follow the tokens before
        them here yet, and as many of those before them as matches are measured.
        """
        size = SIZES[0]
        next_token, here = text[size:], np.arange(len(codes))
        at = self._tables[size].places(codes)
        mine = (at > 0) & (at < self._used) & (self._owners[at] == owner.number)
        same = mine & (self._stream[at] == next_token)
        # Where the places before go the same way, the tokens before were compared with theirs.
        along = np.zeros(len(at), bool)
        along[1:] = same[1:] & same[:-1] & (at[1:] == at[:-1] + 1)
        found = here - np.maximum.accumulate(np.where(along, -1, here)) >= size
        found[self._verified(np.flatnonzero(same & ~found), at, text)] = True
        changed = np.zeros(len(at), bool)
        changed[self._verified(np.flatnonzero(mine & ~same), at, text)] = True
        # Entries of the table are lost to collisions: from the last place found, the text is
        # followed for as long as it goes on in the same way.
        last = np.maximum.accumulate(np.where(found, here, -1))
        place = np.minimum(at[last] + here - last, self._used - 1)  # where a border is
        differs = (last < 0) | changed | (self._stream[place] != next_token)
        new = np.zeros(len(text), bool)
        new[size:] = np.maximum.accumulate(np.where(differs, here, -1)) >= last
        sums = np.concatenate(([0], np.cumsum(new)))
        ends = np.minimum(np.arange(len(text)) + LONGEST + 1, len(text))
        kept: NDArray[np.bool_] = sums[ends] > sums[:-1]
        return kept

    def _verified(self, grams: Places, at: Places, text: NDArray[np.int32]) -> Places:
        """The grams whose tokens stand before their places ``at``: the hashes only found them."""
        size = SIZES[0]
        for back in range(-size, 0):
            if not len(grams):
                break
            grams = grams[self._stream[at[grams] + back] == text[grams + size + back]]
        return grams


def _code(gram: Sequence[int], owner: _Owner) -> int:
    """The hash of a gram, as `_codes` has it."""
    code: int = sum(map(operator.mul, gram, _POWERS[len(gram)])) & _WORD
    code = ((code ^ owner.secret) * _MIX) & _WORD
    return code ^ (code >> 32)


def _codes(text: NDArray[np.int32], size: int, owner: _Owner) -> Hashes:
    """(n - size,) hashes of the grams that a token follows."""
    n, wide = len(text) - size, text.astype(np.uint64)
    codes = np.zeros(n, np.uint64)
    for i in range(size):
        codes *= np.uint64(_BASE)
        codes += wide[i : i + n]
    codes ^= np.uint64(owner.secret)
    codes *= np.uint64(_MIX)
    codes ^= codes >> np.uint64(32)
    return codes
