"""The search within a chat."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from tui.input import keymap


class FindInput(Input):
    """The words that are searched."""

    BINDINGS = keymap.FIND

    class Left(Message):
        """The user leaves the search."""

    class Stepped(Message):
        """The user wants the hit before (-1) or after (1)."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def action_step(self, step: int) -> None:
        """Go to another hit."""
        self.post_message(self.Stepped(step))

    def action_leave(self) -> None:
        """Back to the composer."""
        self.post_message(self.Left())


class FindBar(Horizontal):
    """The input of the search, and which hit is shown."""

    def compose(self) -> ComposeResult:
        """Both parts."""
        self.input = FindInput(placeholder="search this chat", compact=True, validate_on=())
        self._count = Static(markup=False)
        yield Static("Find", markup=False, id="find-label")
        yield self.input
        yield self._count

    def open(self) -> None:
        """Show the bar and type into it; the last search is replaced by typing."""
        self.display = True
        self.input.focus()
        self.input.action_select_all()

    def show_count(self, text: str) -> None:
        """Show which hit it is, and of how many."""
        self._count.update(text)
