"""The marker that ends a thinking, in the tokens of a reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from localspec.core.values import Ids


class Texts(Protocol):
    """The texts of a model's tokens."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, none for control tokens."""
        ...

    def marker(self, token: int) -> str:
        """The name of a control token."""
        ...

    def tokenize(self, text: str, *, special: bool = ...) -> list[int]:
        """Ids of a text; with ``special``, control tokens are recognised in it."""
        ...


class ThoughtEnd:
    """Finds the marker in the text, as the reader of the reply does: models split it in many ways.
    Where it is plain text, a token that completes it may go on with white space, which belongs to
    no part of a reply, and with nothing else: the grammar begins behind that token.
    """

    def __init__(self, marker: str, model: Texts, vocabulary: Iterable[bytes] = ()) -> None:
        """``vocabulary`` are the bytes of all tokens; control tokens may have any that are no
        text.
        """
        self._marker, self._model = marker.encode(), model
        tokens = model.tokenize(marker, special=True)
        self._named = {t: model.marker(t).encode() for t in tokens if not model.piece(t)}
        self._beyond = _beyond(self._marker, vocabulary)

    def place(self, tokens: Sequence[int], start: int, searched: int) -> int | None:
        """The place after the token that completes the marker of the reply that begins at
        ``start``; None where none does. None of the first ``searched`` tokens does.
        """
        said = self._last(tokens, start, searched)
        for at in range(searched, len(tokens)):
            said += self._text(tokens[at])
            if self._marker in said:
                return at + 1
            said = said[-len(self._marker) :]
        return None

    def beyond(self, tokens: Sequence[int], start: int) -> Iterator[Ids]:
        """The tokens that would complete the marker behind these, and say more."""
        said = self._last(tokens, start, len(tokens))
        return (ids for length, ids in self._beyond if said.endswith(self._marker[:length]))

    def _text(self, token: int) -> bytes:
        return self._model.piece(token) or self._named.get(token, b"")

    def _last(self, tokens: Sequence[int], start: int, end: int) -> bytes:
        """The last bytes before a place, as many as may begin the marker, or a few more."""
        found = b""
        for at in range(min(end, len(tokens)) - 1, start - 1, -1):
            if len(found) >= len(self._marker):
                break
            found = self._text(tokens[at]) + found
        return found


def _beyond(marker: bytes, vocabulary: Iterable[bytes]) -> list[tuple[int, Ids]]:
    """The tokens that complete a marker and go on with more than white space, by the length of the
    marker's part before them.
    """
    ends = tuple(marker[length:] for length in range(1, len(marker)))
    found: dict[int, list[int]] = {}
    for token, text in enumerate(vocabulary):
        if marker in text and not _is_blank(text.partition(marker)[2]):
            found.setdefault(0, []).append(token)
        if text.startswith(ends):
            for length, end in enumerate(ends, 1):
                if text.startswith(end) and not _is_blank(text[len(end) :]):
                    found.setdefault(length, []).append(token)
    return [(length, np.array(tokens, np.int32)) for length, tokens in found.items()]


def _is_blank(text: bytes) -> bool:
    return not text.decode("utf-8", "replace").strip()
