"""Tokens before a place, without a copy: a text may have a hundred thousand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class TokenView(Sequence[int]):
    """The first tokens of a text, then drafted ones.

    The text may grow meanwhile, as that of a running request does: what was appended since is not
    part of the view.
    """

    __slots__ = ("_drafted", "_length", "_text")

    def __init__(
        self, text: Sequence[int], drafted: Sequence[int] = (), length: int | None = None
    ) -> None:
        """``length`` tokens of ``text``; None: all that it has now."""
        self._text, self._drafted = text, drafted
        self._length = len(text) if length is None else length

    def __len__(self) -> int:
        return self._length + len(self._drafted)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        n = self._length
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            found = [*self._text[start : min(stop, n)]]
            found += self._drafted[max(start - n, 0) : max(stop - n, 0)]
            return found
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._text[index] if index < n else self._drafted[index - n]
