"""Pickers that look alike: a title, a search, and a list from which Enter takes a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.config.presets import Preset
from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import PickerScreen
from tui.terminal import theme
from tui.widgets.key_bar import KeyBar

T = TypeVar("T")


class PlainPicker(PickerScreen[T, T | None], Generic[T]):
    """The look of such a picker; Enter takes one of ``shown``."""

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

    def on_mount(self) -> None:
        """Show all."""
        self.fill()

    @on(Input.Changed)
    def _searched(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Show the rows that have the words of the search."""
        raise NotImplementedError

    def has_words(self, text: str) -> bool:
        """Whether a text has all words of the search."""
        words = self.query_one(Input).value.casefold().split()
        return all(word in text.casefold() for word in words)

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Take the row under the cursor."""
        self.after_keys(self._choose)

    def _choose(self) -> None:
        if (chosen := self.highlighted) is not None:
            self.dismiss(chosen)

    def list_lines(self, lines: Sequence[Content], otherwise: str, at: int = 0) -> None:
        """Show lines, with the cursor on one of them, or say why there are none."""
        self._list.clear_options()
        self._list.add_options([Option(line) for line in lines])
        if lines:
            self._list.highlighted = at
        else:
            self._list.add_option(Option(Content.styled(otherwise, "$quiet"), disabled=True))


class RowPicker(PlainPicker[int]):
    """Choose one of some rows of two columns; returns its place."""

    BINDINGS = keymap.of_screen("rows")

    def __init__(self, title: str, rows: Sequence[tuple[str, str]], at: int) -> None:
        """``at`` is the row that the cursor is on first."""
        super().__init__(title, "search this list")
        self._rows, self._at = rows, at

    def fill(self) -> None:
        """Show the rows with the first column as wide as it needs."""
        self.shown = [i for i, row in enumerate(self._rows) if self.has_words(" ".join(row))]
        width = max((len(plain(first)) for first, _ in self._rows), default=0)
        lines = [
            Content.assemble((plain(first).ljust(width + 2), "bold $secondary"), plain(rest))
            for first, rest in (self._rows[i] for i in self.shown)
        ]
        at = self.shown.index(self._at) if self._at in self.shown else 0
        self.list_lines(lines, "no line contains this", at)


_WIDEST = 24
"""Cells of a column."""
_NONE = "no presets yet; /preset save NAME saves the present settings as one"


class PresetsScreen(PlainPicker[Preset]):
    """Choose a preset; returns it."""

    BINDINGS = keymap.of_screen("presets")

    def __init__(self, presets: Sequence[Preset]) -> None:
        super().__init__(
            "Presets: Enter uses one from the next reply on", "search names and settings"
        )
        self._presets = presets

    def fill(self) -> None:
        """Show presets in columns."""
        self.shown = [p for p in self._presets if self.has_words(f"{p.name} {p.about}")]
        rows = [(preset.name, *preset.row) for preset in self.shown]
        widths = [
            min(_WIDEST, max((len(plain(row[i])) for row in rows), default=0)) for i in (0, 1, 2)
        ]
        said = "no preset has these words" if self._presets else _NONE
        self.list_lines([_line(row, widths) for row in rows], said)


def _line(row: Sequence[str], widths: Sequence[int]) -> Content:
    """Name, model and tools in columns, then the rest; a column that nobody fills is left out."""
    *cells, rest = (Content(plain(cell)) for cell in row)
    line = Content("")
    for cell, width, style in zip(cells, widths, ("", "$secondary", "$secondary"), strict=True):
        if width:
            shown = cell.truncate(width, ellipsis=True)
            line += shown.pad_right(width - shown.cell_length + 2).stylize(style)
    return line + rest.stylize("$quiet")


_REST_S = 0.1
"""Seconds that the cursor rests on a theme before it is shown: every style is computed anew."""


class ThemesScreen(PlainPicker[str]):
    """Choose a theme; returns its name, None for the one before."""

    BINDINGS = keymap.of_screen("themes")

    def __init__(self, present: str, preview: Callable[[str], None]) -> None:
        """``preview`` shows the application in a theme."""
        super().__init__("Themes: Enter keeps one, Esc the one before", "search names")
        self._present, self._preview = present, preview
        self._waiting: Timer | None = None

    def fill(self) -> None:
        """Show names."""
        self.shown = [name for name in theme.NAMES if self.has_words(name)]
        at = self.shown.index(self._present) if self._present in self.shown else 0
        lines = [Content(name) for name in self.shown]
        self.list_lines(lines, "no theme has these letters", at)

    @on(OptionList.OptionHighlighted)
    def _look(self, event: OptionList.OptionHighlighted) -> None:
        """Show the theme once the cursor rests."""
        if self._waiting is not None:
            self._waiting.stop()
        if event.option_index < len(self.shown):
            name = self.shown[event.option_index]
            self._waiting = self.set_timer(_REST_S, lambda: self._rested(name))

    def _rested(self, name: str) -> None:
        if self.is_current:  # else something was chosen meanwhile
            self._preview(name)
