"""The theme picker, above the end of a chat that has the colours of the theme under the cursor."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList

from tui.input import keymap
from tui.screens.picking import PlainPicker
from tui.terminal import theme

_REST_S = 0.1
"""Seconds that the cursor rests on a theme before it is shown: every style is computed anew."""


class ThemesScreen(PlainPicker[str | None]):
    """Choose a theme; returns its name, None for the one before."""

    BINDINGS = keymap.THEMES

    def __init__(self, present: str, preview: Callable[[str], None]) -> None:
        """``preview`` shows the application in a theme."""
        super().__init__("Themes: Enter keeps one, Esc the one before", "search names")
        self._present, self._preview = present, preview
        self._shown: list[str] = []
        self._waiting: Timer | None = None

    def on_mount(self) -> None:
        """Show all."""
        self._fill()

    @on(Input.Changed)
    def _fill(self) -> None:
        self._shown = [name for name in theme.NAMES if self.has_words(name)]
        at = self._shown.index(self._present) if self._present in self._shown else 0
        lines = [Content(name) for name in self._shown]
        self.list_lines(lines, "no theme has these letters", at)

    @on(OptionList.OptionHighlighted)
    def _look(self, event: OptionList.OptionHighlighted) -> None:
        """Show the theme once the cursor rests."""
        if self._waiting is not None:
            self._waiting.stop()
        if event.option_index < len(self._shown):
            name = self._shown[event.option_index]
            self._waiting = self.set_timer(_REST_S, lambda: self._rested(name))

    def _rested(self, name: str) -> None:
        if self.is_current:  # else something was chosen meanwhile
            self._preview(name)

    def chosen(self, at: int) -> str:
        """The theme in a line."""
        return self._shown[at]
