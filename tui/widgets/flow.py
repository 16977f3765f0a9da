"""Growing text: an addition wraps and draws only its last line again."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message

from tui.render.lines import EMPTY, Line, lines_of
from tui.widgets.lines import Lines


class TextFlow(Lines):
    """Growing text; never parsed as markup."""

    class Pointed(Message):
        """A character was clicked."""

        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position
            """Index in the shown text."""

    def __init__(self, classes: str) -> None:
        super().__init__(classes=classes)
        self._open: Content = EMPTY  # the last line, which another word may still follow

    def add(self, text: Content) -> None:
        """Append text."""
        if not text:
            return
        start = len(self._entries) - bool(self._open)
        lines = lines_of(self._open + text)
        self._open = lines[-1].content
        # A line end at the end of the text does not start a line yet.
        self.replace(start, lines if self._open else lines[:-1])

    def reset(self, text: Content) -> None:
        """Show other text instead."""
        lines = lines_of(text)
        self._open = lines[-1].content if lines else EMPTY
        self.replace(0, lines if self._open else lines[:-1])

    def cut(self, lines: int) -> None:
        """Remove lines at the top."""
        if lines >= len(self._entries):
            self._open = EMPTY
        self.remove_first(lines)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that are shown."""
        return tuple(entry for entry in self._entries if isinstance(entry, Line))

    def on_click(self, event: events.Click) -> None:
        """Report which character was clicked."""
        place = event.style.meta.get("offset")
        if place is not None:
            column, line = place
            before = sum(len(entry.text) + 1 for entry in self._entries[:line])
            self.post_message(self.Pointed(before + column))

    def row_at(self, position: int) -> int:
        """The row in which a character of the text is drawn."""
        for index, entry in enumerate(self._entries[: len(self._ends)]):
            if position <= len(entry.text):
                return self.row_of(index, position)
            position -= len(entry.text) + 1
        return self._ends[-1] - 1 if self._ends else 0
