"""Lines of styled text that know how many rows they take at a given width, and small pictures.

A line is broken only when it is drawn or when it is too long for its width, so thousands of them
cost next to nothing while they are off the screen.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from rich.cells import cell_len
from textual.content import Content, Span

from localspec.core.picture import Pixels

EMPTY = Content("")
PROSE = 100
"""Largest width of a row of prose in cells: longer rows are hard to read."""
CODE = "on $surface"
"""Style of a line of code."""
_LONG = 4000
"""Characters from which a line is broken at the row's end rather than between words."""

_COLUMNS, _ROWS = 36, 12
"""Largest size in cells."""
THUMBNAIL_SIZE = (_COLUMNS, 2 * _ROWS)
"""The same in pixels."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen."""

    lead: Content
    text: Content
    start: int
    """Index of the row's text in its line."""


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
    """Width of a text in cells."""
    return len(text) if text.isascii() else cell_len(text)


def leads(first: Content, rest: Content, width: int) -> tuple[Content, Content, int]:
    """Leads that leave at least half of the width, and the width they leave."""
    most = width // 2
    if max(first.cell_length, rest.cell_length) > most:
        # Nested deeply on a narrow screen: the inner end of the lead stays.
        first, rest = first[max(0, len(first) - most) :], rest[max(0, len(rest) - most) :]
    return first, rest, _room(first, rest, width)


def _room(first: Content, rest: Content, width: int) -> int:
    size = max(first.cell_length, rest.cell_length)
    return max(2, width - min(size, width // 2))  # a wide character has to fit


@dataclass(frozen=True, eq=False)
class CodeBlock:
    """Identity of the lines of one block of code."""


@dataclass(frozen=True, slots=True)
class Line:
    """Text with leads for its first and its further rows."""

    content: Content
    first: Content = EMPTY
    rest: Content = EMPTY
    style: str = ""
    """Style of the whole row, to the right end."""
    fold: bool = False
    """Whether it is broken at the row's end rather than between words."""
    block: CodeBlock | None = None
    """The code that it is a line of."""
    hidden: tuple[Line, ...] = ()
    """Folded lines that this one is shown instead of."""

    @property
    def text(self) -> str:
        return self.content.plain

    def led_by(self, first: Content, rest: Content) -> Line:
        """The line with a further lead."""
        return dataclasses.replace(self, first=first + self.first, rest=rest + self.rest)

    def height(self, width: int) -> int:
        """Number of rows at this width."""
        text, room = self.text, _room(self.first, self.rest, self._width(width))
        if cells(text) <= room:
            return 1
        return len(_cuts(text, room, self._folds)) + 1

    def rows(self, width: int) -> list[Row]:
        """The rows at this width."""
        first, rest, room = leads(self.first, self.rest, self._width(width))
        text = self.text
        if cells(text) <= room:
            return [Row(first, self.content, 0)]
        cuts = _cuts(text, room, self._folds)
        parts = self.content.divide(cuts)
        if not self._folds:  # the spaces at a break are not drawn
            parts = [part.rstrip() for part in parts]
        starts = [0, *cuts]
        return [
            Row(rest if start else first, part, start)
            for part, start in zip(parts, starts, strict=True)
        ]

    def _width(self, width: int) -> int:
        return width if self.fold else min(width, PROSE)

    @property
    def _folds(self) -> bool:
        return self.fold or len(self.content) > _LONG


def _cuts(text: str, room: int, fold: bool) -> list[int]:
    """The breaks of a text that is wider than ``room`` cells.

    Between words, unless ``fold``; a row may then end with spaces that go beyond the room.
    """
    narrow = text.isascii()
    if narrow and fold:
        return list(range(room, len(text), room))
    ends = range(len(text) + 1) if narrow else _ends(text)
    cuts, start, end = [], 0, len(text)
    while ends[end] - ends[start] > room:
        if narrow:
            at = start + room
        else:
            at = bisect_right(ends, ends[start] + room, lo=start + 1) - 1
            at = max(at, start + 1)  # one character at least
        if not fold and (space := text.rfind(" ", start, at + 1)) > start:
            at = space + 1
        while not fold and at < end and text[at] == " ":
            at += 1
        if at >= end:
            break
        cuts.append(at)
        start = at
    return cuts


def _ends(text: str) -> list[int]:
    """Cells before each character and before the end."""
    return [0, *itertools.accumulate(map(cell_len, text))]


BLANK = Line(EMPTY)


def lines_of(text: Content) -> list[Line]:
    """The lines of a text."""
    return [Line(part) for part in text.split(allow_blank=True)] if text else []


SHORTEST = 12
"""Lines of code from which a block can be folded."""
_SHOWN = 4
"""Lines of a folded block that stay."""


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code, and which lines of a text it has now."""

    block: CodeBlock
    first: int
    lines: tuple[Line, ...]

    @property
    def end(self) -> int:
        """Index after the last of its lines."""
        return self.first + len(self.lines)

    @property
    def folded(self) -> bool:
        """Whether lines are hidden."""
        return bool(self.lines[-1].hidden)

    @property
    def foldable(self) -> bool:
        """Whether it is folded, or long enough for it."""
        return self.folded or len(self.lines) >= SHORTEST

    def toggled(self) -> list[Entry]:
        """Its lines, folded if they were not, else unfolded."""
        if self.folded:
            return unfolded(self.lines)
        shown, hidden = self.lines[:_SHOWN], self.lines[_SHOWN:]
        says = f"… {len(hidden)} more lines (click or F7, Alt+O to unfold)"
        more, lead = Content.styled(says, "$quiet"), hidden[0].rest
        return [*shown, Line(more, lead, lead, CODE, block=self.block, hidden=hidden)]


def codes(entries: Sequence[Entry]) -> Iterator[Code]:
    """The blocks of code of a text, from top to bottom."""
    indexed = enumerate(entries)
    for block, part in groupby(indexed, lambda pair: getattr(pair[1], "block", None)):
        if block is not None:
            found = list(part)
            lines = tuple(line for _, line in found if isinstance(line, Line))
            yield Code(block, found[0][0], lines)


def unfolded(lines: Iterable[Entry]) -> list[Entry]:
    """The lines with those that some of them stand for."""
    return [one for line in lines for one in (getattr(line, "hidden", ()) or (line,))]


def thumbnail(pixels: Pixels) -> list[Line]:
    """Lines that show pixels of at most `THUMBNAIL_SIZE`."""
    return [_line(pixels, y) for y in range(0, pixels.height, 2)]


def _line(pixels: Pixels, y: int) -> Line:
    spans: list[Span] = []
    for x in range(pixels.width):
        style = _colour(pixels, x, y)
        if y + 1 < pixels.height:
            style += f" on {_colour(pixels, x, y + 1)}"
        if spans and spans[-1].style == style:
            spans[-1] = Span(spans[-1].start, x + 1, style)
        else:
            spans.append(Span(x, x + 1, style))
    return Line(Content("▀" * pixels.width, spans))


def _colour(pixels: Pixels, x: int, y: int) -> str:
    at = 3 * (y * pixels.width + x)
    return f"#{pixels.rgb[at : at + 3].hex()}"
