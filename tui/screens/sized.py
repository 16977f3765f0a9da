"""Bases of screens: laid out once for each terminal size, closed once, and drawn ahead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.geometry import Size
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Input, OptionList

from tui.terminal.textual_private import EndsWorkers, Foreseen
from tui.widgets.chat_log import ChatLog
from tui.widgets.growth_painter import GrowthPainter


class SizedScreen(EndsWorkers, Screen[ScreenResultType]):
    """A screen that sets the classes of its size before the layout, and handles each size once.

    Textual sets them after the layout, computes every style again and repeats the layout; and a
    screen receives a resize event for a size that it has just been laid out for. Three layouts were
    a visible stutter.
    """

    _taken: Size | None = None

    def on_resize(self, event: events.Resize) -> None:
        """Prepare for a new size; Textual's layout follows."""
        if event.size == self._taken:
            event.prevent_default()
            return
        self._taken = event.size
        self.fit(event.size)

    def fit(self, size: Size) -> None:
        """Change what depends on the size, before the layout."""
        if self.take_size(size):
            self.update_node_styles(animate=False)

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the screen and report the result. Keys typed before it was gone may still come in
        afterwards; they do not close the screen below it, nor report a second time.
        """
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def take_size(self, size: Size) -> bool:
        """Set the classes of a size without computing styles; whether they changed."""
        before = frozenset(self.classes)
        for points, length in (
            (self.HORIZONTAL_BREAKPOINTS, size.width),
            (self.VERTICAL_BREAKPOINTS, size.height),
        ):
            self._take(points or (), length)
        return frozenset(self.classes) != before

    def _take(self, points: Sequence[tuple[int, str]], length: int) -> None:
        named = max((point for point in points if length >= point[0]), default=(0, ""))[1]
        for _, name in points:
            self.set_class(name == named, name, update=False)


Row = TypeVar("Row")


class PickerScreen(
    SizedScreen[ScreenResultType], ModalScreen[ScreenResultType], Generic[Row, ScreenResultType]
):
    """A list whose cursor moves while the user types in the search above it."""

    AUTO_FOCUS = "Input"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012 - Textual's type

    def __init__(self) -> None:
        super().__init__()
        self._list = OptionList(markup=False, compact=True, id="list")
        self._list.can_focus = False
        self.shown: list[Row] = []
        """What the rows of the list stand for, from top to bottom."""

    @property
    def highlighted(self) -> Row | None:
        """The row under the cursor."""
        at = self._list.highlighted
        return self.shown[at] if at is not None and at < len(self.shown) else None

    def action_leave(self) -> None:
        """Back to the chat."""
        self.dismiss(None)

    def after_keys(self, step: Callable[[], object]) -> None:
        """Do something once all keys typed before have had their effect: that of Enter comes first
        in Textual, and they would go to the chat. A key goes to the search, then to the screen, and
        where neither has a use for it to the keys of the app.
        """
        self.query_one(Input).call_later(self.call_later, self.app.call_later, step)

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


class DrawnAheadScreen(Foreseen, SizedScreen[None]):
    """Has a layout come before whatever else happens where a reply was drawn without one."""

    def paint_growth_of(self, log: ChatLog) -> None:
        """Draw the replies of a conversation; to be called before the screen is mounted."""
        self._conversation = log
        self.painter = GrowthPainter(self, log)

    def catch_up(self) -> None:
        """Lay out what was drawn without a layout: places on the screen are about to be used."""
        if self.painter.ahead:
            self.lay_out()

    def prepare_layout(self) -> bool:
        """Have the layout place all rows; where it has to, it does not scroll."""
        return self.painter.prepare_layout()

    def wants_layout(self, changed: Collection[Widget]) -> bool:
        """Whether something in the conversation is drawn while the terminal is ahead."""
        lines = (widget.ancestors_with_self for widget in changed)
        return self.painter.ahead and (
            not changed or any(self._conversation in line for line in lines)
        )
