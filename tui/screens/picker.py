"""The common part of the lists of chats and of models: a search with a list below it."""

from __future__ import annotations

from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import OptionList

from tui.screens.sized import SizedScreen


class PickerScreen(SizedScreen[ScreenResultType], ModalScreen[ScreenResultType]):
    """A list whose cursor moves while the user types in the search above it."""

    AUTO_FOCUS = "Input"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012 - Textual's type

    def __init__(self) -> None:
        super().__init__()
        self._list = OptionList(markup=False, compact=True, id="list")
        self._list.can_focus = False

    def action_leave(self) -> None:
        """Back to the chat."""
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        if step < 0:
            self._list.action_cursor_up()
        else:
            self._list.action_cursor_down()

    def action_page(self, step: int) -> None:
        """Move the cursor by a page."""
        height = max(1, self._list.size.height - 1)
        at = (self._list.highlighted or 0) + step * height
        last = self._list.option_count - 1
        if last >= 0:
            self._list.highlighted = max(0, min(last, at))
