"""Pickers that look alike: a title, a search, and a list from which Enter takes a row."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.screen import ScreenResultType
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import PickerScreen
from tui.widgets.key_bar import KeyBar


class PlainPicker(PickerScreen[ScreenResultType]):
    """Its look, and the words of the search."""

    def __init__(self, title: str, search: str) -> None:
        super().__init__()
        self._title, self._search = title, search

    def compose(self) -> ComposeResult:
        """The title, a search and the list."""
        self.take_size(self.app.size)
        yield Static(Content.styled(plain(self._title), "bold $primary"), id="title")
        yield Input(placeholder=self._search, id="query", validate_on=())
        yield self._list
        yield KeyBar()

    def has_words(self, text: str) -> bool:
        """Whether a text has all words of the search."""
        words = self.query_one(Input).value.casefold().split()
        return all(word in text.casefold() for word in words)

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Take the row under the cursor."""
        self.after_keys(self._choose)

    def _choose(self) -> None:
        at = self._list.highlighted
        if at is not None and self._list.get_option_at_index(at).disabled is False:
            self.dismiss(self.chosen(at))

    def chosen(self, at: int) -> ScreenResultType:
        """What the row in this line of the list stands for."""
        raise NotImplementedError

    def list_lines(self, lines: Sequence[Content], otherwise: str, at: int = 0) -> None:
        """Show lines, with the cursor on one of them, or say why there are none."""
        self._list.clear_options()
        self._list.add_options([Option(line) for line in lines])
        if lines:
            self._list.highlighted = at
        else:
            self._list.add_option(Option(Content.styled(otherwise, "$quiet"), disabled=True))


class RowPicker(PlainPicker[int | None]):
    """Choose one of some rows of two columns; returns its place."""

    BINDINGS = keymap.ROWS

    def __init__(self, title: str, rows: Sequence[tuple[str, str]], at: int) -> None:
        """``at`` is the row that the cursor is on first."""
        super().__init__(title, "search this list")
        self._rows, self._at = rows, at
        self._shown: list[int] = []

    def on_mount(self) -> None:
        """Show all."""
        self._fill()

    @on(Input.Changed)
    def _fill(self) -> None:
        self._shown = [i for i, row in enumerate(self._rows) if self.has_words(" ".join(row))]
        width = max((len(plain(first)) for first, _ in self._rows), default=0)
        lines = [
            Content.assemble((plain(first).ljust(width + 2), "bold $secondary"), plain(rest))
            for first, rest in (self._rows[i] for i in self._shown)
        ]
        at = self._shown.index(self._at) if self._at in self._shown else 0
        self.list_lines(lines, "no line contains this", at)

    def chosen(self, at: int) -> int:
        """The place of a row."""
        return self._shown[at]
