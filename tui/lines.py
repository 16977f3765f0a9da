"""Lines of styled text that know how many rows they take at a given width.

A line is broken only when it is drawn or when it is too long for its width, so thousands of them
cost next to nothing while they are off the screen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.cells import cell_len
from textual.content import Content

EMPTY = Content("")
_LONG = 4000
"""Characters from which a line is cut where the row ends and no longer between words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen."""

    lead: Content
    text: Content
    start: int
    """Where the text begins in its line."""


class Entry(Protocol):
    """One line; ``text`` is what a selection takes from it."""

    @property
    def text(self) -> str: ...

    @property
    def style(self) -> str: ...

    def height(self, width: int) -> int: ...

    def rows(self, width: int) -> Sequence[Row]: ...

    def led_by(self, first: Content, rest: Content) -> Entry: ...


def cells(text: str) -> int:
    """The cells that a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def leads(first: Content, rest: Content, width: int) -> tuple[Content, Content, int]:
    """Leads that leave at least half of the width, and the width they leave."""
    most = width // 2
    size = max(first.cell_length, rest.cell_length)
    if size > most:  # nested deeply on a narrow screen: the inner end of the lead stays
        first, rest = first[max(0, len(first) - most) :], rest[max(0, len(rest) - most) :]
        size = max(first.cell_length, rest.cell_length)
    return first, rest, max(2, width - size)  # a wide character has to fit


@dataclass(frozen=True, slots=True)
class Line:
    """Text with what leads its first and its further rows."""

    content: Content
    first: Content = EMPTY
    rest: Content = EMPTY
    style: str = ""
    """Of the whole row, to the right end."""
    fold: bool = False
    """Whether it is cut where the row ends rather than between words."""

    @property
    def text(self) -> str:
        return self.content.plain

    def led_by(self, first: Content, rest: Content) -> Line:
        """The line with something more before its leads."""
        return dataclasses.replace(self, first=first + self.first, rest=rest + self.rest)

    def height(self, width: int) -> int:
        """Rows at this width."""
        size, room = cells(self.text), leads(self.first, self.rest, width)[2]
        if size <= room:
            return 1
        if self._folds and self.text.isascii():
            return -(-size // room)
        return len(self._broken(self.content.without_spans, room))

    def rows(self, width: int) -> list[Row]:
        """The rows at this width."""
        first, rest, room = leads(self.first, self.rest, width)
        if cells(self.text) <= room:
            return [Row(first, self.content, 0)]
        rows: list[Row] = []
        at, text = 0, self.text
        for part in self._broken(self.content, room):
            while not self._folds and rows and at < len(text) and text[at] == " ":
                at += 1  # the spaces at which it was broken belong to no row
            rows.append(Row(rest if rows else first, part, at))
            at += len(part)
        return rows

    @property
    def _folds(self) -> bool:
        return self.fold or len(self.text) > _LONG

    def _broken(self, content: Content, room: int) -> list[Content]:
        return content.divide(_cuts(self.text, room)) if self._folds else content.wrap(room)


def _cuts(text: str, room: int) -> list[int]:
    """Where a text is cut so that each part takes at most ``room`` cells."""
    if text.isascii():
        return list(range(room, len(text), room))
    cuts, filled = [], 0
    for at, char in enumerate(text):
        size = cell_len(char)
        if filled + size > room and filled:
            cuts.append(at)
            filled = 0
        filled += size
    return cuts


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""

    sign: str = "─"
    style: str = "$border-blurred"
    first: Content = EMPTY
    rest: Content = EMPTY
    text: str = ""

    def led_by(self, first: Content, rest: Content) -> Rule:
        """The rule with something more before it."""
        return dataclasses.replace(self, first=first + self.first, rest=rest + self.rest)

    def height(self, width: int) -> int:
        """One row."""
        del width
        return 1

    def rows(self, width: int) -> list[Row]:
        """As wide as there is room."""
        first, _, room = leads(self.first, self.rest, width)
        return [Row(first, Content(self.sign * room), 0)]


BLANK = Line(EMPTY)


def lines_of(text: Content) -> list[Line]:
    """Text cut at its line ends."""
    return [Line(part) for part in text.split(allow_blank=True)] if text else []
