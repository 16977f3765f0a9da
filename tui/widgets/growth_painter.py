"""Draws a growing reply straight to the terminal, between two layouts of the screen.

A layout and the composition of all visible widgets cost 10 to 20 ms of CPU, and a reply that grows
by a row needs both. On a machine where the model uses every processor, its threads wait that long.
While nothing but the reply changes, the new picture of the conversation is known without them: the
old rows, moved up, and the new rows of the text. `GrowthPainter` writes only the rows that differ.
Whatever else happens in the conversation is preceded by a layout, which brings Textual's own
picture up to date (`ChatScreen`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.segment import Segment
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from tui.terminal import textual_private
from tui.terminal.textual_private import measure_in_next_layout
from tui.widgets.chat_log import ChatLog
from tui.widgets.lines import Lines
from tui.widgets.message import ReplyView


@dataclass(slots=True)
class _Layout:
    """The places of the last layout of the screen, and the lines that were drawn since."""

    view: ReplyView
    lines: tuple[Lines, ...]
    """The parts of the reply that grow, from top to bottom."""
    window: Region
    """Where the conversation is drawn, without its scroll bar."""
    text: Region
    """Where the growing lines are, partly outside of the window."""
    room: int | None
    """Rows that may be added before a scroll bar has to appear; None where there is one."""
    drawn: list[Strip]
    """The rows of the window as they are on the terminal."""
    first: list[Strip]
    """The rows of the window as the layout has drawn them."""
    known: dict[tuple[int, int], tuple[Strip, Strip]] = field(default_factory=dict)
    """Rows with their margins, by part and row: the row they were made of, and the result."""


class GrowthPainter:
    """Keeps the terminal up to date with the reply that grows in a conversation."""

    def __init__(self, screen: Screen[None], log: ChatLog) -> None:
        self._screen, self._log = screen, log
        self._held: list[Lines] = []
        self._layout: _Layout | None = None

    @property
    def ahead(self) -> bool:
        """Whether the terminal shows rows that no layout has placed yet."""
        return any(lines.behind for lines in self._held)

    def hold(self, view: ReplyView) -> None:
        """Have the lines of a reply grow without layouts; `paint` draws them."""
        if self._held and self._held[0] in view.growing:
            return
        self.let_go()
        self._held = list(view.growing)
        for lines in self._held:
            lines.held = True

    def let_go(self) -> None:
        """Have the reply laid out by Textual again, at its next refresh."""
        for lines in self._held:
            lines.held = False
        self._request_layout()
        self._held = []

    def prepare_layout(self) -> bool:
        """Have the layout that follows at once place all rows; whether it has to place any."""
        ahead = self.ahead
        for lines in self._caught_up():
            measure_in_next_layout(lines)
        return ahead

    def paint(self, view: ReplyView) -> None:
        """Draw what has grown, or ask for a layout where only that can show it."""
        if not self.ahead or not textual_private.draws(self._screen):
            return
        if self._layout is None or self._layout.view is not view:
            self._layout = self._found(view)
        rows = self._rows(self._layout) if self._layout is not None else None
        if self._layout is None or rows is None:
            self._request_layout()
            return
        drawn, window = self._layout.drawn, self._layout.window
        changed = [
            (window.y + y, new)
            for y, (new, old) in enumerate(zip(rows, drawn, strict=True))
            if new is not old
        ]
        self._layout.drawn = rows
        if changed:
            textual_private.write(self._screen, window.x, changed)

    def _request_layout(self) -> None:
        for lines in self._caught_up():
            lines.refresh(layout=True)

    def _caught_up(self) -> list[Lines]:
        """The lines that a layout is to place now."""
        behind = [lines for lines in self._held if lines.behind]
        for lines in behind:
            lines.behind = False
        self._layout = None
        return behind

    def _found(self, view: ReplyView) -> _Layout | None:
        """The present layout; None where rows cannot be drawn without another one."""
        screen, log = self._screen, self._log
        text, window = view.growing_region, log.scrollable_content_region
        if screen.app.screen is not screen or log.reading_back or not log.is_anchored:
            return None
        if not textual_private.is_up_to_date(screen):
            return None
        if not text or text.bottom > window.bottom:
            return None
        if any(part.size.width != text.width for part in view.growing):
            return None
        strips = textual_private.rows_of(screen, window)
        if len(strips) != window.height:
            return None
        first = [strip.crop(window.x, window.right) for strip in strips]
        room = None if log.show_vertical_scrollbar else -log.scroll_offset.y
        return _Layout(view, view.growing, window, text, room, list(first), first)

    def _rows(self, layout: _Layout) -> list[Strip] | None:
        """The rows of the window as they have to be drawn now; None where a layout is needed.

        An anchored conversation ends at the bottom of the window, so text grows upwards.
        """
        heights = [part.height_at(layout.text.width) for part in layout.lines]
        grown = sum(heights) - layout.text.height
        if grown < 0 or (layout.room is not None and grown > layout.room):
            return None
        places = [(part, row) for part, height in enumerate(heights) for row in range(height)]
        top, rows = layout.text.y - grown, []
        for y in range(layout.window.y, layout.window.bottom):
            if y < top:
                rows.append(layout.first[y + grown - layout.window.y])
            elif y < layout.text.bottom:
                rows.append(self._with_margins(layout, *places[y - top]))
            else:
                rows.append(layout.first[y - layout.window.y])
        return rows

    def _with_margins(self, layout: _Layout, part: int, row: int) -> Strip:
        """One row of the text with its margins."""
        inner = layout.lines[part].render_line(row)
        known = layout.known.get((part, row))
        if known is not None and known[0] is inner:
            return known[1]
        window, text = layout.window, layout.text
        left, right = text.x - window.x, window.right - text.right
        style = self._log.visual_style.rich_style
        whole = Strip(
            [Segment(" " * left, style), *inner, Segment(" " * right, style)], window.width
        )
        background = self._log.background_colors[1]
        for line_filter in self._log.get_line_filters():
            whole = whole.apply_filter(line_filter, background)
        layout.known[part, row] = inner, whole
        return whole
