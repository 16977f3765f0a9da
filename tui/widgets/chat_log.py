"""The scrolling conversation. Only the newest messages are widgets; older ones load on demand."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button

from tui.session.conversation import ChatTurn
from tui.widgets.message import Note, QuestionView, ReplyView

KEEP = 10
"""Messages that stay mounted: each further one slows the layout of every new line of a reply."""
_AT_ONCE = 50
"""Messages mounted together on the way to the oldest; keys are handled in between."""
SLACK = 10
"""Messages beyond `KEEP` before the oldest are unmounted; also how many load at a time."""


class OlderButton(Button):
    """Loads older messages."""

    def __init__(self) -> None:
        super().__init__("", compact=True)
        self.display = False


class ChatLog(VerticalScroll):
    """Messages and notes, oldest first."""

    class OlderWanted(Message):
        """The user asks for older messages."""

    can_focus = True

    def __init__(self) -> None:
        super().__init__()
        self._turns: list[ChatTurn] = []
        self._first = 0  # index of the first turn that is mounted
        self._views: list[QuestionView | ReplyView] = []
        self._others: list[Widget] = []
        self.colours = False
        self.reading_back = False
        """Whether the user has scrolled away from the newest message."""

    def compose(self) -> ComposeResult:
        """The button above everything."""
        self._older = OlderButton()
        yield self._older

    def on_mount(self) -> None:
        """Follow the newest message until the user scrolls."""
        self.anchor()

    @property
    def hidden(self) -> int:
        """Number of older messages that are not mounted."""
        return self._first

    async def add_turn(self, turn: ChatTurn) -> QuestionView | ReplyView:
        """Show the next message."""
        view = self._view(turn)
        self._turns.append(turn)
        self._views.append(view)
        await self.mount(view)
        if len(self._views) > KEEP + SLACK and not self.reading_back:
            await self._prune()
        return view

    async def show_turns(self, turns: Sequence[ChatTurn]) -> None:
        """Replace everything by these turns; the newest are mounted."""
        await self.clear()
        self._turns.extend(turns)
        self._first = max(0, len(self._turns) - KEEP)
        self._views = [self._view(turn) for turn in self._turns[self._first :]]
        await self.mount_all(self._views)
        self._count()

    def shows(self, turn: ChatTurn) -> bool:
        """Whether a turn belongs to the conversation of the log, mounted or not."""
        return any(known is turn for known in self._turns)

    def view_of(self, turn: ChatTurn) -> ReplyView | None:
        """The widget that shows a reply, if it is mounted."""
        views = (view for view in reversed(self._views) if isinstance(view, ReplyView))
        return next((view for view in views if view.turn is turn), None)

    async def add(self, widget: Widget) -> None:
        """Show a widget that is not part of the conversation."""
        self._others.append(widget)
        await self.mount(widget)

    async def note(self, text: str) -> None:
        """Show a line of the interface, once where it would follow itself."""
        last = self.children[-1] if self.children else None
        if not (isinstance(last, Note) and last.says == text):
            await self.add(Note(text))
        self.anchor()

    async def add_list(self, widget: Widget) -> None:
        """Show a widget from its beginning, even where it is higher than the log."""
        await self.add(widget)
        self.anchor()
        self.call_after_refresh(self._show_beginning, widget)

    def _show_beginning(self, widget: Widget) -> None:
        if widget.is_attached and widget.outer_size.height > self.content_size.height:
            self.release_anchor()
            self.scroll_to_widget(widget, animate=False, top=True)

    async def clear(self) -> None:
        """Remove everything."""
        self._turns.clear()
        self._views.clear()
        self._others.clear()
        self._first = 0
        await self.query_children().exclude("OlderButton").remove()
        self._count()
        self.anchor()

    async def load_older(self) -> None:
        """Mount the next older messages without moving the visible ones."""
        start = max(0, self._first - SLACK)
        views = [self._view(turn) for turn in self._turns[start : self._first]]
        if not views:
            return
        self.release_anchor()
        below = self.virtual_size.height - self.scroll_y
        self._first = start
        self._views[:0] = views
        await self.mount_all(views, after=self._older)
        self._count()
        self.call_after_refresh(
            lambda: self.scroll_to(y=self.virtual_size.height - below, animate=False)
        )

    async def show_oldest(self) -> None:
        """Mount all older messages and scroll to the first."""
        self.release_anchor()
        while self._first:
            start = max(0, self._first - _AT_ONCE)
            views = [self._view(turn) for turn in self._turns[start : self._first]]
            self._first = start
            self._views[:0] = views
            await self.mount_all(views, after=self._older)
            self._count()
        self.scroll_home(animate=False)

    def mark(self, turn: ChatTurn | None) -> None:
        """Mark the question that is edited and scroll to it; None removes the mark."""
        for view in self._views:
            if isinstance(view, QuestionView):
                marked = view.turn is turn
                view.set_class(marked, "-edited")
                if marked:
                    self.release_anchor()
                    self.scroll_to_widget(view, animate=False)
        if turn is None and self.reading_back:
            self.anchor()

    async def set_colours(self, colours: bool) -> None:
        """Show origins, or Markdown, in every reply."""
        self.colours = colours
        for view in self._views:
            if isinstance(view, ReplyView):
                await view.set_colours(colours)

    def anchor(self, anchor: bool = True) -> None:
        """Follow the newest message."""
        super().anchor(anchor)
        self.reading_back = False

    def release_anchor(self) -> None:
        """Stop following; called where the user scrolls."""
        super().release_anchor()
        self.reading_back = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the newest message again where the user scrolls to the end."""
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self.reading_back = False
        elif new_value <= 0 < old_value and self.reading_back and self._first:
            self.post_message(self.OlderWanted())

    def _view(self, turn: ChatTurn) -> QuestionView | ReplyView:
        if turn.role == "user":
            return QuestionView(turn)
        return ReplyView(turn, colours=self.colours)

    async def _prune(self) -> None:
        excess = len(self._views) - KEEP
        gone: list[Widget] = list(self._views[:excess])
        keep_from = self.children.index(self._views[excess])
        # Notes are removed with the messages around them.
        gone += [other for other in self._others if self.children.index(other) < keep_from]
        self._others = [other for other in self._others if other not in gone]
        del self._views[:excess]
        self._first += excess
        with self.app.batch_update():
            await self.remove_children(gone)
            self._count()

    def _count(self) -> None:
        self._older.display = self._first > 0
        self._older.label = f"load older ({self._first})  ctrl+o"

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.OlderWanted())
