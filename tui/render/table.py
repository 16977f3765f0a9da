"""Tables and rules as lines: columns as wide as they need, narrower where there is no room."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content

from tui.render.lines import EMPTY, Entry, Line, Row, leads

_BETWEEN = " │ "
_NARROWEST = 4
_HEADER = "bold $primary"
_QUIET = "$border-blurred"


@dataclass(slots=True)
class Grid:
    """The column widths of a table."""

    natural: Sequence[int]
    """Cells of the widest text of each column."""
    aligned: Sequence[str]
    """Alignment of each column: left, center or right."""
    _fitted: dict[int, tuple[int, ...] | None] = field(default_factory=dict)

    def columns(self, room: int) -> tuple[int, ...] | None:
        """Widths of the columns; None where they do not fit."""
        if room not in self._fitted:
            self._fitted = {room: self._fit(room - len(_BETWEEN) * (len(self.natural) - 1))}
        return self._fitted[room]

    def _fit(self, room: int) -> tuple[int, ...] | None:
        """Natural widths; where they do not fit, the widest columns are narrowed."""
        if room < sum(min(width, _NARROWEST) for width in self.natural):
            return None
        widest = max(self.natural, default=0)
        low, high = 1, max(1, widest)  # the largest common limit that fits
        while low < high:
            middle = (low + high + 1) // 2
            if sum(min(width, middle) for width in self.natural) <= room:
                low = middle
            else:
                high = middle - 1
        return tuple(min(width, low) for width in self.natural)


@dataclass(frozen=True, slots=True)
class GridRow:
    """One row of a table."""

    grid: Grid
    parts: tuple[Content, ...]
    header: bool = False
    first: Content = EMPTY
    rest: Content = EMPTY
    style: str = ""

    @property
    def text(self) -> str:
        return _BETWEEN.join(part.plain for part in self.parts)

    def led_by(self, first: Content, rest: Content) -> GridRow:
        """The row with something more before it."""
        return dataclasses.replace(self, first=first + self.first, rest=rest + self.rest)

    def height(self, width: int) -> int:
        """Rows of the screen at this width."""
        room = leads(self.first, self.rest, width)[2]
        columns = self.grid.columns(room)
        if columns is None:
            return self._as_line().height(width)
        if all(part.cell_length <= w for part, w in zip(self.parts, columns, strict=True)):
            return 1
        return max(len(part.wrap(w)) for part, w in zip(self.parts, columns, strict=True))

    def rows(self, width: int) -> list[Row]:
        """The cells beside each other, each broken within its column."""
        first, rest, room = leads(self.first, self.rest, width)
        columns = self.grid.columns(room)
        if columns is None:
            return self._as_line().rows(width)
        broken = [
            part.wrap(w) if part.cell_length > w else [part]
            for part, w in zip(self.parts, columns, strict=True)
        ]
        rows: list[Row] = []
        for at in range(max(map(len, broken))):
            cells = [
                _placed(lines[at] if at < len(lines) else EMPTY, w, align)
                for lines, w, align in zip(broken, columns, self.grid.aligned, strict=True)
            ]
            if self.header:
                cells = [cell.stylize_before(_HEADER) for cell in cells]
            line = Content.styled(_BETWEEN, _QUIET).join(cells)
            rows.append(Row(rest if rows else first, line, len(self.text) if rows else 0))
        return rows

    def _as_line(self) -> Line:
        line = Content(_BETWEEN).join(self.parts)
        return Line(line.stylize_before(_HEADER) if self.header else line, self.first, self.rest)


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal rule: that below the header of a table, or one as wide as the text."""

    grid: Grid | None = None
    first: Content = EMPTY
    rest: Content = EMPTY
    style: str = _QUIET
    text: str = ""

    def led_by(self, first: Content, rest: Content) -> Rule:
        """The rule with something more before it."""
        return dataclasses.replace(self, first=first + self.first, rest=rest + self.rest)

    def height(self, width: int) -> int:
        """One row."""
        del width
        return 1

    def rows(self, width: int) -> list[Row]:
        """Width of the table, or the whole width."""
        first, _, room = leads(self.first, self.rest, width)
        columns = None if self.grid is None else self.grid.columns(room)
        sign = "─" * room if columns is None else "─┼─".join("─" * w for w in columns)
        return [Row(first, Content(sign), 0)]


def table(
    header: Sequence[Content], rows: Sequence[Sequence[Content]], aligned: Sequence[str]
) -> list[Entry]:
    """The lines of a table; rows have as many cells as the header."""
    natural = [max(1, *(row[i].cell_length for row in (header, *rows))) for i in range(len(header))]
    grid = Grid(natural, aligned)
    body = [GridRow(grid, tuple(row)) for row in rows]
    return [GridRow(grid, tuple(header), header=True), Rule(grid), *body]


def _placed(text: Content, width: int, align: str) -> Content:
    room = max(0, width - text.cell_length)
    left = room if align == "right" else room // 2 if align == "center" else 0
    return text.pad(left, room - left)
