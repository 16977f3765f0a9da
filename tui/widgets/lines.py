"""A widget for any number of lines: measures all, draws the visible ones."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual import events
from textual.containers import VerticalScroll
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from tui.render.lines import Code, CodeBlock, Entry, Line, Row, codes, unfolded
from tui.terminal.textual_private import Placed

_MOST_DRAWN = 1000
"""Drawn rows in the cache: a few screens."""
_FOUND = "bold underline"
"""What a search within a chat has found; the place that is shown is selected besides."""


_WORD = re.compile(r"[\w]+(?:['’.-]\w+)*|[^\w\s]+")


def _style(style: str | Style) -> Style:
    return style if isinstance(style, Style) else Style.parse(style)


class Lines(Placed, Widget):
    """Lines of text, one below the other; they can be selected, and links in them clicked."""

    DEFAULT_CSS = """
    Lines {
        width: 1fr;
        height: auto;
    }
    """

    @dataclass
    class LinkClicked(Message):
        """A link was clicked."""

        href: str

    def __init__(self, entries: Iterable[Entry] = (), *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._entries: list[Entry] = list(entries)
        self._ends: list[int] = []  # the row after each of the first lines, as far as measured
        self._measured = 0  # the width they were measured at
        self._drawn: dict[int, Strip] = {}
        self._broken: tuple[int, list[Row]] = (-1, [])  # the rows of the line drawn last
        self._marked: re.Pattern[str] | None = None
        self.held = False
        """Whether changes ask for no layout; `GrowthPainter` draws them."""
        self.behind = False
        """Whether lines have changed since the last layout."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The lines."""
        return tuple(self._entries)

    @property
    def text(self) -> str:
        """The whole text, as it is copied."""
        return "\n".join(entry.text for entry in self._entries)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append lines."""
        self.replace(len(self._entries), entries)

    def replace(self, start: int, entries: Iterable[Entry]) -> None:
        """Replace the lines from index ``start`` on."""
        lines, width = list(entries), self._measured
        if not width:
            self._entries[start:] = lines
            self.refresh(layout=True)
            return
        height = self.height_at(width)
        kept = self._ends[start - 1] if start else 0
        kept += self._rows_that_stay(start, lines)
        self._entries[start:] = lines
        del self._ends[start:]
        for row in [row for row in self._drawn if row >= kept]:
            del self._drawn[row]
        self._broken = (-1, [])
        if self.held:
            self.behind = True
        elif self.height_at(width) != height:
            self.refresh(layout=True)
        elif kept < height:
            gutter = self.styles.gutter
            self.refresh(Region(gutter.left, gutter.top + kept, width, height - kept))

    def _rows_that_stay(self, start: int, new: Sequence[Entry]) -> int:
        """Rows of line ``start`` that stay as they are where it only grew at its end."""
        if not new or start != len(self._entries) - 1:
            return 0
        old = self._entries[start]
        if not new[0].text.startswith(old.text) or new[0].style != old.style:
            return 0
        return old.height(self._measured) - 1

    def remove_first(self, count: int) -> None:
        """Remove lines at the top."""
        self.replace(0, self._entries[count:])

    # -- folding code --------------------------------------------------------------------------

    def code(self, block: CodeBlock) -> Code | None:
        """Where a block of code is now; None where it was removed."""
        return next((code for code in codes(self._entries) if code.block is block), None)

    def toggle_code(self, block: CodeBlock) -> None:
        """Fold a block of code, or unfold it."""
        if (code := self.code(block)) is not None and code.foldable:
            self.replace(code.first, [*code.toggled(), *self._entries[code.end :]])

    def unfold(self) -> None:
        """Unfold all code."""
        if any(code.folded for code in codes(self._entries)):
            self.replace(0, unfolded(self._entries))

    def on_click(self, event: events.Click) -> None:
        """Unfold the code whose last row says how much is hidden.

        Two clicks select a word and three a paragraph; Textual selects the message, and all.
        """
        if event.chain in (2, 3):
            self._select_at(event)
            return
        place = event.get_content_offset(self)
        index = bisect_right(self._ends, place.y) if place is not None else len(self._ends)
        entry = self._entries[index] if index < len(self._ends) else None
        if isinstance(entry, Line) and entry.hidden and entry.block is not None:
            self.toggle_code(entry.block)

    def _select_at(self, event: events.Click) -> None:
        found, at = self.screen.get_widget_and_offset_at(*event.screen_offset)
        if found is not self or at is None or at.y >= len(self._entries):
            return
        event.prevent_default()
        text = self._entries[at.y].text
        span = (0, len(text))
        if event.chain == 2:
            words = (m.span() for m in _WORD.finditer(text))
            span = next((s for s in words if s[0] <= at.x < s[1]), (at.x, at.x))
        self.select_span(at.y, *span)

    # -- measuring and drawing -----------------------------------------------------------------

    def height_at(self, width: int) -> int:
        """Rows of all lines together at a width."""
        if not width:
            return 0
        if width != self._measured:
            self._measured = width
            self._ends.clear()
            self._forget_drawn()
        end = self._ends[-1] if self._ends else 0
        for entry in self._entries[len(self._ends) :]:
            end += entry.height(width)
            self._ends.append(end)
        return end

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """The whole width."""
        del viewport
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows at this width."""
        del container, viewport
        return self.height_at(width)

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        self.height_at(width)
        if y not in self._drawn:
            if len(self._drawn) > _MOST_DRAWN:
                self._drawn.clear()
            self._drawn[y] = self._draw(y, width)
        return self._drawn[y]

    def _draw(self, y: int, width: int) -> Strip:
        base = self.visual_style
        index = bisect_right(self._ends, y)
        if index >= len(self._entries):
            return Strip.blank(width, base.rich_style)
        entry = self._entries[index]
        if self._broken[0] != index:
            self._broken = (index, list(entry.rows(width)))
        row = self._broken[1][y - (self._ends[index - 1] if index else 0)]
        style = base + Style.parse(entry.style) if entry.style else base
        text = row.text
        selection = self.text_selection
        span = selection.get_span(index) if selection is not None else None
        if self._marked is not None:
            text = text.highlight_regex(self._marked, style=_FOUND)
        if span is not None:
            start, end = span[0] - row.start, (len(entry.text) if span[1] < 0 else span[1])
            marked = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            text = text.stylize(marked, max(0, start), max(0, end - row.start))
        segments: list[Segment] = []
        for part, part_style in row.lead.render(style, end="", parse_style=_style):
            segments.append(Segment(part, part_style.rich_style))
        x = row.start
        for part, part_style in text.render(style, end="", parse_style=_style):
            segments.append(Segment(part, part_style.rich_style_with_offset(x, index)))
            x += len(part)
        return Strip(segments).adjust_cell_length(width, style.rich_style)

    def _forget_drawn(self) -> None:
        self._drawn.clear()
        self._broken = (-1, [])

    def notify_style_update(self) -> None:
        """Draw again with other colours."""
        super().notify_style_update()
        self._forget_drawn()

    def row_of(self, index: int, position: int) -> int:
        """The row in which a character of a line is drawn."""
        starts = [row.start for row in self._entries[index].rows(self._measured)]
        before = self._ends[index - 1] if index else 0
        return before + max(0, bisect_right(starts, position) - 1)

    def select_span(self, index: int, start: int, end: int) -> None:
        """Select characters of a line, in place of any other selection."""
        self.screen.selections = {self: Selection(Offset(start, index), Offset(end, index))}

    def select_code(self, block: CodeBlock) -> None:
        """Select a block of code, in place of any other selection."""
        if (code := self.code(block)) is not None:
            last = Offset(len(code.lines[-1].text), code.end - 1)
            self.screen.selections = {self: Selection(Offset(0, code.first), last)}

    def mark(self, words: str) -> None:
        """Mark every place that has these words; "" marks none."""
        pattern = re.compile(re.escape(words), re.IGNORECASE) if words else None
        if pattern != self._marked:
            self._marked = pattern
            self._forget_drawn()
            self.refresh()

    def show_place(self, index: int, position: int) -> None:
        """Scroll to a character of a line, if it is not visible."""
        log = next((node for node in self.ancestors if isinstance(node, VerticalScroll)), None)
        if log is None or not self.is_attached or index >= len(self._ends):
            return
        y = self.region.y + self.row_of(index, position)
        if not log.content_region.y <= y < log.content_region.bottom:
            log.release_anchor()
            y += int(log.scroll_offset.y) - log.content_region.y
            height = log.content_region.height
            log.scroll_to(y=max(0, y - height // 3), animate=False, force=True)

    # -- selecting and clicking ----------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, with all code of blocks that are folded."""
        texts = selection.extract(self.text).split("\n")
        first = selection.start.y if selection.start is not None else 0
        for at, entry in enumerate(self._entries[first : first + len(texts)]):
            if isinstance(entry, Line) and entry.hidden:
                texts[at] = "\n".join(line.text for line in entry.hidden)
        return "\n".join(texts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection."""
        super().selection_updated(selection)
        self._forget_drawn()

    def action_link(self, href: str) -> None:
        """A link was clicked."""
        self.post_message(self.LinkClicked(href))
