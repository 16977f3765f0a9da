"""The palette of commands: Textual's, closed once."""

from __future__ import annotations

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.widgets import Button, Input, OptionList

from tui.terminal.textual_private import EndsWorkers


class Palette(EndsWorkers, CommandPalette):
    """Carries out one command. Textual's closes the screen below it too, and carries the command
    out again, for an Enter that was typed before it was gone.
    """

    @on(Input.Submitted)
    @on(Button.Pressed)
    @on(OptionList.OptionSelected)
    def _choose_once(self, event: Input.Submitted) -> None:
        if not self.is_current:
            event.prevent_default().stop()

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette, where it is not closed already."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
