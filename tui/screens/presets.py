"""The preset picker: each with its model, its tools and its system prompt."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.widgets import Input

from localspec.config.presets import Preset
from tui.input import keymap
from tui.render.text import plain
from tui.screens.picking import PlainPicker

_WIDEST = 24
"""Cells of a column."""
_NONE = "no presets yet; /preset save NAME saves the present settings as one"


class PresetsScreen(PlainPicker[Preset | None]):
    """Choose a preset; returns it."""

    BINDINGS = keymap.PRESETS

    def __init__(self, presets: Sequence[Preset]) -> None:
        super().__init__(
            "Presets: Enter uses one from the next reply on", "search names and settings"
        )
        self._presets = presets
        self._shown: list[Preset] = []

    def on_mount(self) -> None:
        """Show all."""
        self._fill()

    @on(Input.Changed)
    def _fill(self) -> None:
        self._shown = [p for p in self._presets if self.has_words(f"{p.name} {p.about}")]
        rows = [(preset.name, *preset.row) for preset in self._shown]
        widths = [
            min(_WIDEST, max((len(plain(row[i])) for row in rows), default=0)) for i in (0, 1, 2)
        ]
        said = "no preset has these words" if self._presets else _NONE
        self.list_lines([_line(row, widths) for row in rows], said)

    def chosen(self, at: int) -> Preset:
        """The preset in a line."""
        return self._shown[at]


def _line(row: Sequence[str], widths: Sequence[int]) -> Content:
    """Name, model and tools in columns, then the rest; a column that nobody fills is left out."""
    *cells, rest = (Content(plain(cell)) for cell in row)
    line = Content("")
    for cell, width, style in zip(cells, widths, ("", "$secondary", "$secondary"), strict=True):
        if width:
            shown = cell.truncate(width, ellipsis=True)
            line += shown.pad_right(width - shown.cell_length + 2).stylize(style)
    return line + rest.stylize("$quiet")
