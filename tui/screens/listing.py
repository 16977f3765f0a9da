"""A list of two columns over the chat: keys and commands, settings, open chats."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import SizedScreen
from tui.widgets.key_bar import KeyBar
from tui.widgets.message import Columns


class ListScreen(SizedScreen[None], ModalScreen[None]):
    """Shows rows from the first one on; typing keeps those that contain the words."""

    BINDINGS = keymap.of_screen("listing")
    AUTO_FOCUS = "Input"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012 - Textual's type

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._rows = title, rows

    def compose(self) -> ComposeResult:
        """The title, a search, the rows."""
        self.take_size(self.app.size)
        yield Static(Content.styled(plain(self._title), "bold $primary"), id="title")
        yield Input(placeholder="search this list", id="query", validate_on=())
        with VerticalScroll(can_focus=False):
            yield Columns(self._rows, self.app.size.width)
        yield KeyBar()

    def on_mount(self) -> None:
        """Remember the parts that keys change."""
        self._scroll = self.query_one(VerticalScroll)

    @on(Input.Changed)
    def _searched(self) -> None:
        self._fill(self.app.size.width)
        self._scroll.scroll_home(animate=False)

    def _fill(self, room: int) -> None:
        """Show the rows that contain the words."""
        words = self.query_one(Input).value.casefold().split()
        found = [row for row in self._rows if _has(row, words)]
        self.query_one(Columns).show(found or [("", "no line contains this")], room)

    @on(Input.Submitted)
    def action_leave(self) -> None:
        """Back to the chat."""
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows."""
        self._scroll.scroll_relative(y=rows, animate=False)

    def action_page(self, step: int) -> None:
        """Scroll by a page."""
        self.action_scroll(step * max(1, self._scroll.size.height - 1))

    def fit(self, size: Size) -> None:
        """Use the available columns."""
        super().fit(size)
        self._fill(size.width)


def _has(row: tuple[str, str], words: Sequence[str]) -> bool:
    text = " ".join(row).casefold()
    return all(word in text for word in words)
