"""Markdown that is still being written: closed blocks as they will stay, the open one as text."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from tui.lines import Entry
from tui.markdown import code_theme, typeset
from tui.stream import BlockSplitter
from tui.widgets.flow import TextFlow
from tui.widgets.lines import Lines

_AT_ONCE = 1500
"""Characters that are set in the event loop; more would be felt, and goes to a thread."""
_PIECE = 20_000
"""Characters that are looked at together where very much comes at once."""


class StreamedMarkdown(Vertical):
    """A growing text: the closed blocks above, below them what is not set yet."""

    DEFAULT_CSS = """
    StreamedMarkdown {
        height: auto;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._splitter = BlockSplitter()
        self._waiting: deque[str] = deque()  # closed, not set yet
        self._setting = False
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
        """Nothing yet."""
        self._ansi = self.app.native_ansi_color
        self._show_parts()

    @property
    def source(self) -> str:
        """The text as it came."""
        return self._source

    @property
    def settled(self) -> bool:
        """Whether every closed block is set."""
        return not self._waiting and not self._setting

    def add(self, text: str) -> None:
        """Append text."""
        if not text:
            return
        self._source += text
        self.tail.add(Content(text))
        for at in range(0, len(text), _PIECE):
            self._close(self._splitter.feed(text[at : at + _PIECE]))
        self._set_waiting()

    def finish(self) -> None:
        """Nothing more comes: the open block is closed too."""
        rest = self._splitter.rest
        self._splitter = BlockSplitter()
        self._close(rest)
        self._set_waiting()

    def clear(self) -> None:
        """Begin anew."""
        self._splitter = BlockSplitter()
        self._waiting.clear()
        self._source, self._links = "", {}
        self.closed.replace(0, ())
        self.tail.reset(Content(""))
        self._show_parts()

    def notify_style_update(self) -> None:
        """Terminal colours take another theme for code, so the text is set again."""
        super().notify_style_update()
        if self.is_mounted and self._ansi is not self.app.native_ansi_color:
            self._ansi = self.app.native_ansi_color
            source, ended = self._source, not self._splitter.rest
            self.clear()
            self.add(source)
            if ended:
                self.finish()

    def _close(self, text: str) -> None:
        if text:
            self._waiting.append(text)

    def _set_waiting(self) -> None:
        """Set what is closed: at once, or in a thread while the text stays below as it is."""
        if self._setting:
            return
        if sum(map(len, self._waiting)) > _AT_ONCE:
            self._setting = True
            self.run_worker(self._set_slowly())
            return
        while self._waiting:
            text = self._waiting.popleft()
            self._show(text, self._set(text))
        self._show_parts()

    def _set(self, text: str) -> list[Entry]:
        app = self.app
        theme = code_theme(ansi=app.native_ansi_color, dark=app.current_theme.dark)
        return typeset(text, theme, self._links)

    async def _set_slowly(self) -> None:
        try:
            while self._waiting:
                text, links = self._waiting[0], self._links
                lines = await asyncio.to_thread(self._set, text)
                if links is self._links:  # else it was cleared in the meantime
                    self._waiting.popleft()
                    self._show(text, lines)
        finally:
            self._setting = False

    def _show(self, text: str, lines: list[Entry]) -> None:
        """Put set lines in place of their text; together, or the text would jump."""
        with self.app.batch_update():
            self.closed.extend(lines)
            self.tail.cut(text.count("\n") + (not text.endswith("\n")))
            self._show_parts()

    def _show_parts(self) -> None:
        self.closed.display = bool(self.closed.entries)
        self.tail.display = bool(self.tail.entries)
