"""The scrolling conversation. Only the newest messages are widgets; older ones load on demand."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button

from tui.session.commands import told_here
from tui.session.conversation import ChatTurn
from tui.terminal.textual_private import Placed
from tui.widgets.message import Note, QuestionView, ReplyView

KEEP = 10
"""Messages that stay mounted: each further one slows the layout of every new line of a reply."""
SLACK = 10
"""Messages beyond `KEEP` before the oldest are unmounted; also how many load at a time."""


class LoadButton(Button):
    """Loads older messages, or newer ones where the newest are not mounted."""

    def __init__(self) -> None:
        super().__init__("", compact=True)
        self.display = False


class ChatLog(Placed, VerticalScroll):
    """Messages and notes, oldest first. A window of the messages is mounted, by `mount_all` alone:
    Textual's `mount` raises where the interface ends meanwhile.
    """

    class OlderWanted(Message):
        """The user asks for older messages."""

    class NewerWanted(Message):
        """The user asks for newer messages, after a jump away from the newest."""

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
        """The buttons above and below the messages."""
        self._older, self._newer = LoadButton(), LoadButton()
        yield self._older
        yield self._newer

    def on_mount(self) -> None:
        """Follow the newest message until the user scrolls."""
        self.anchor()

    @property
    def empty(self) -> bool:
        """Whether nothing is shown."""
        return not self._turns and not self._others

    @property
    def views(self) -> Sequence[QuestionView | ReplyView]:
        """The messages that are mounted, oldest first."""
        return self._views

    @property
    def _end(self) -> int:
        """Index after the last turn that is mounted."""
        return self._first + len(self._views)

    @property
    def at_newest(self) -> bool:
        """Whether the newest message is mounted."""
        return self._end == len(self._turns)

    async def add_turns(self, turns: Sequence[ChatTurn]) -> None:
        """Show the next messages, see `add_turn`."""
        for turn in turns:
            await self.add_turn(turn)

    async def add_turn(self, turn: ChatTurn) -> None:
        """Show the next message; while older ones are read after a jump, it is only counted."""
        attached = self.at_newest
        self._turns.append(turn)
        if attached:
            view = self._view(turn)
            self._views.append(view)
            await self.mount_all([view])
            if len(self._views) > KEEP + SLACK and not self.reading_back:
                await self._unload_oldest()
        elif self.reading_back:
            self._count()
        else:
            await self.show_newest()

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
        await self.mount_all([widget])

    async def note(self, text: str) -> None:
        """Show a line of the interface, once where it would follow itself."""
        last = self.children[-1] if self.children else None
        if not (isinstance(last, Note) and last.says == text):
            await self.add(Note(text))
        self.anchor()

    def says(self, text: str | None) -> bool:
        """Whether an error with this text is mounted."""
        said = None if text is None else told_here(text)
        return any(isinstance(other, Note) and other.says == said for other in self._others)

    async def clear(self) -> None:
        """Remove everything."""
        self._turns.clear()
        self._views.clear()
        self._others.clear()
        self._first = 0
        await self.query_children().exclude("LoadButton").remove()
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

    async def load_newer(self) -> None:
        """Mount the next newer messages, where the newest are not mounted."""
        end = self._end
        views = [self._view(turn) for turn in self._turns[end : end + SLACK]]
        if not views:
            return
        await self.mount_all(views, before=self._newer)
        self._views += views
        self._count()

    async def show_oldest(self) -> None:
        """Scroll to the first message; it is mounted without those between."""
        self._leave()
        if self._first:
            await self._mount_window(0)
        self.call_after_refresh(self.scroll_home, animate=False)  # after that of `load_older`

    async def show_newest(self) -> None:
        """Scroll to the last message and follow it."""
        if not self.at_newest:
            await self._mount_window(max(0, len(self._turns) - KEEP))
        self.anchor()

    async def show_turn(self, turn: ChatTurn) -> QuestionView | ReplyView | None:
        """Mount the widget of a turn where it is not, and scroll to it; None for a turn of another
        branch.
        """
        place = next((i for i, known in enumerate(self._turns) if known is turn), None)
        if place is None:
            return None
        self._leave()
        if not self._first <= place < self._end:
            await self._mount_window(max(0, place - KEEP // 2))
        view = self._views[place - self._first]
        self.call_after_refresh(self.scroll_to_widget, view, animate=False, top=True)
        return view

    def _leave(self) -> None:
        """Stop following, also where the messages on the way do not fill the screen."""
        super().anchor(False)
        self.reading_back = True

    async def _mount_window(self, first: int) -> None:
        """Mount the turns from ``first`` on in place of those that are mounted."""
        gone = [*self._views, *self._others]
        self._others.clear()
        self._first = first
        self._views = [self._view(turn) for turn in self._turns[first : first + KEEP]]
        with self.app.batch_update():
            await self.remove_children(gone)
            await self.mount_all(self._views, after=self._older)
            self._count()

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
        if new_value >= self.max_scroll_y and not self.at_newest:
            if new_value > old_value:
                self.post_message(self.NewerWanted())
        elif new_value >= self.max_scroll_y:
            self.reading_back = False
            if not self.is_anchored and new_value > old_value:
                super().anchor()
        elif new_value <= 0 < old_value and self.reading_back and self._first:
            self.post_message(self.OlderWanted())

    def _view(self, turn: ChatTurn) -> QuestionView | ReplyView:
        if turn.role == "user":
            return QuestionView(turn)
        return ReplyView(turn, colours=self.colours)

    async def _unload_oldest(self) -> None:
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
        newer = len(self._turns) - self._end
        self._newer.display = newer > 0
        self._newer.label = f"{newer} newer  ctrl+end: the newest"

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        older = event.button is self._older
        self.post_message(self.OlderWanted() if older else self.NewerWanted())
