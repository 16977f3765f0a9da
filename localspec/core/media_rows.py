"""Rows of pictures among the tokens of a prompt.

A picture is read as rows of embeddings, which have no token ids. In lists of tokens they have ids
below zero, made of what the rows depend on: the decoded pixels, the projector, and the place in the
picture. So wherever two lists begin with the same ids, caches of them hold the same, and nothing
that compares, counts, saves or restores tokens has to know of pictures.

Whether a row is the first of its picture can be told from its id. A picture is read and kept as a
whole: within it attention may not be causal, and its positions may not be those of text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

UNKNOWN = -1
"""A token that is not known; what others are shown in place of a row."""
_HIGHEST = -2
"""The highest id of a row."""
_BITS = 29


def row_ids(key: bytes, rows: int) -> list[int]:
    """Ids of the rows of a picture; ``key`` is a digest of all that they depend on."""
    mixed = hashlib.shake_256(key + rows.to_bytes(4, "little")).digest(4 * rows)
    hashed = np.frombuffer(mixed, np.uint32).astype(np.int64) & ((1 << _BITS) - 1)
    first = np.zeros(rows, np.int64)
    first[:1] = 1
    ids: list[int] = (_HIGHEST - (2 * hashed + first)).tolist()
    return ids


def is_row(token: int) -> bool:
    """Whether an id is that of a row."""
    return token <= _HIGHEST


def _goes_on(token: int) -> bool:
    return token <= _HIGHEST and not (_HIGHEST - token) & 1


class Ids(Protocol):
    """Tokens in a list or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> Any: ...


def before(tokens: Ids, at: int) -> int:
    """The last place up to ``at`` that is not inside of a picture."""
    while 0 < at < len(tokens) and _goes_on(int(tokens[at])):
        at -= 1
    return at


def after(tokens: Ids, at: int) -> int:
    """The first place from ``at`` on that is not inside of a picture."""
    while 0 < at < len(tokens) and _goes_on(int(tokens[at])):
        at += 1
    return at


def runs(tokens: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """The tokens in runs of (start, end, whether it is a picture), each picture one of its own."""
    start = 0
    for at in range(1, len(tokens) + 1):
        if at < len(tokens):
            token, last = tokens[at], tokens[at - 1]
            if _goes_on(token) or not (is_row(token) or is_row(last)):
                continue
        yield start, at, is_row(tokens[start])
        start = at


def has_rows(tokens: Sequence[int]) -> bool:
    """Whether there is a picture among the tokens."""
    return bool(len(tokens)) and min(tokens) <= _HIGHEST
