"""Text while it grows: plain, or Markdown whose closed blocks are typeset."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message

from localspec.core.in_thread import Gone, in_thread
from tui.render.block_splitter import BlockSplitter
from tui.render.lines import EMPTY, Entry, lines_of
from tui.terminal.resources import Rests
from tui.terminal.textual_private import Placed
from tui.widgets.lines import Lines

_AT_ONCE = 1500
"""Characters that are typeset in the event loop; more would stall it and go to a thread."""
_PIECE = 20_000
"""Characters that are split at a time, where many arrive at once."""


class TextFlow(Lines):
    """Growing text; never parsed as markup."""

    @dataclass
    class Pointed(Message):
        """A character was clicked."""

        position: int
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


class StreamedMarkdown(Placed, Vertical):
    """A growing text: typeset blocks above, the rest as plain text below."""

    DEFAULT_CSS = """
    StreamedMarkdown {
        height: auto;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._splitter = BlockSplitter()
        self._coming = ""  # not split yet
        self._ended = False
        self._waiting: deque[str] = deque()  # closed blocks that are not typeset yet
        self._busy = False
        self._source = ""
        self._links: dict[str, Any] = {}
        self._ansi = False
        self.closed = Lines(classes="closed")
        self.tail = TextFlow("tail")

    def compose(self) -> ComposeResult:
        """Both parts."""
        yield self.closed
        yield self.tail

    def on_mount(self) -> None:
        """Start empty."""
        self._ansi = self.app.native_ansi_color

    @property
    def source(self) -> str:
        """The whole text."""
        return self._source

    @property
    def settled(self) -> bool:
        """Whether every closed block is typeset."""
        return not self._coming and not self._waiting and not self._busy

    def add(self, text: str) -> None:
        """Append text."""
        if text:
            self._source += text
            self._coming += text
            self._ended = False
            self._advance()

    def finish(self) -> None:
        """Close the open block: the text is complete."""
        self._ended = True
        self._advance()

    def clear(self) -> None:
        """Remove all text."""
        self._splitter = BlockSplitter()
        self._waiting.clear()
        self._source = self._coming = ""
        self._links, self._ended = {}, False
        self.closed.replace(0, ())
        self.tail.reset(Content(""))

    def notify_style_update(self) -> None:
        """Typeset again where the theme changes to or from terminal colours."""
        super().notify_style_update()
        if self.is_mounted and self._ansi is not self.app.native_ansi_color:
            self._ansi = self.app.native_ansi_color
            source, ended = self._source, self._ended
            self.clear()
            self.add(source)
            if ended:
                self.finish()

    def _advance(self) -> None:
        """Typeset new text: at once, or in a thread while it is shown as plain text."""
        if self._busy:
            return
        if len(self._coming) <= _PIECE:
            self._take()
        much = self._coming or sum(map(len, self._waiting)) > _AT_ONCE
        if much or (self._waiting and self._new_language()):
            self._busy = True
            self.run_worker(self._catch_up())
            return
        while self._waiting:
            text = self._waiting.popleft()
            self._show(text, self._set(text))

    def _new_language(self) -> bool:
        """Whether code waits in a language whose rules are not loaded yet."""
        from tui.render.code_colours import has_new_language

        return any(map(has_new_language, self._waiting))

    def _take(self) -> None:
        """Split the next piece of new text."""
        piece, self._coming = self._coming[:_PIECE], self._coming[_PIECE:]
        self.tail.add(Content(piece))
        if closed := self._splitter.feed(piece):
            self._waiting.append(closed)
        if self._ended and not self._coming and (rest := self._splitter.rest):
            self._waiting.append(rest)
            self._splitter = BlockSplitter()

    async def _catch_up(self) -> None:
        try:
            while self._waiting or self._coming or (self._ended and self._splitter.rest):
                if not self._waiting:
                    self._take()
                    await asyncio.sleep(0)
                    continue
                text, links = self._waiting[0], self._links
                lines = await in_thread(functools.partial(self._set, text))
                if links is self._links:  # else it was cleared in the meantime
                    self._waiting.popleft()
                    self._show(text, lines)
        finally:
            self._busy = False

    def _set(self, text: str, gone: Gone | None = None) -> list[Entry]:
        """Typeset a text: in a thread where ``gone`` is given, which rests now and then."""
        from tui.render.code_colours import code_theme  # here: after the first picture
        from tui.render.markdown import typeset

        app = self.app
        theme = code_theme(ansi=app.native_ansi_color, dark=app.current_theme.dark)
        rest = (lambda: None) if gone is None else Rests(gone)
        return typeset(text, theme, self._links, rest)

    def _show(self, text: str, lines: list[Entry]) -> None:
        """Replace text by its typeset lines, both in one update, or the text would jump."""
        with self.app.batch_update():
            self.closed.extend(lines)
            self.tail.cut(text.count("\n") + (not text.endswith("\n")))
