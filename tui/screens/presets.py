"""The preset picker: each with its model, its tools and its system prompt."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.config.presets import Preset
from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import PickerScreen
from tui.widgets.key_bar import KeyBar

_WIDEST = 24
"""Cells of a column."""
_NONE = "no presets yet; /preset save NAME saves the present settings as one"


class PresetsScreen(PickerScreen[Preset | None]):
    """Choose a preset; returns it."""

    BINDINGS = keymap.PRESETS

    def __init__(self, presets: Sequence[Preset]) -> None:
        super().__init__()
        self._presets = presets
        self._shown: list[Preset] = []

    def compose(self) -> ComposeResult:
        """A search and the list."""
        self.take_size(self.app.size)
        title = "Presets: Enter uses one from the next reply on"
        yield Static(Content.styled(title, "bold $primary"), id="title")
        yield Input(placeholder="search names and settings", id="query", validate_on=())
        yield self._list
        yield KeyBar()

    def on_mount(self) -> None:
        """Show all."""
        self._fill()

    @on(Input.Changed)
    def _fill(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        self._shown = [
            preset
            for preset in self._presets
            if all(word in f"{preset.name} {preset.about}".casefold() for word in words)
        ]
        rows = [(preset.name, *preset.row) for preset in self._shown]
        widths = [
            min(_WIDEST, max((len(plain(row[i])) for row in rows), default=0)) for i in (0, 1, 2)
        ]
        self._list.clear_options()
        self._list.add_options([Option(_line(row, widths)) for row in rows])
        if rows:
            self._list.highlighted = 0
        else:
            said = "no preset has these words" if self._presets else _NONE
            self._list.add_option(Option(Content.styled(said, "$quiet"), disabled=True))

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Use the preset under the cursor."""
        at = self._list.highlighted
        if at is not None and at < len(self._shown):
            self.dismiss(self._shown[at])


def _line(row: Sequence[str], widths: Sequence[int]) -> Content:
    """Name, model and tools in columns, then the rest; a column that nobody fills is left out."""
    *cells, rest = (Content(plain(cell)) for cell in row)
    line = Content("")
    for cell, width, style in zip(cells, widths, ("", "$secondary", "$secondary"), strict=True):
        if width:
            shown = cell.truncate(width, ellipsis=True)
            line += shown.pad_right(width - shown.cell_length + 2).stylize(style)
    return line + rest.stylize("$quiet")
