"""The conversation on the screen, kept in step with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from textual.widget import Widget

from localspec.core.errors import DeviceError, DeviceMemoryError
from tui.session import status_text
from tui.session.conversation import ChatTurn
from tui.session.notifications import (
    CallsChanged,
    ConversationChanged,
    EngineDied,
    LoadFailed,
    ModelOpened,
    NoticeAdded,
    Notification,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
)
from tui.session.session import Session
from tui.widgets.chat_log import ChatLog
from tui.widgets.growth_painter import GrowthPainter
from tui.widgets.message import Help, Note, QuestionView, ReplyView

T = TypeVar("T")


class Transcript:
    """Writes turns, notices and lists into the `ChatLog`, in the order of their events."""

    def __init__(
        self,
        session: Session,
        log: ChatLog,
        welcome: Callable[[], str],
        on_notification: Callable[[Notification], None],
        painter: GrowthPainter,
    ) -> None:
        """``welcome`` gives the text of an empty chat.

        ``on_notification`` is called with each notification before the log shows it.
        """
        self._session = session
        self._log = log
        self._welcome = welcome
        self._on_notification = on_notification
        self._painter = painter
        self.changing = asyncio.Lock()
        """Held while widgets are mounted: keys may act while a refresh waits for a mount."""
        self._live: ReplyView | None = None

    async def start(self) -> None:
        """Show a resumed chat, or the welcome."""
        turns = self._session.chat.conversation.turns
        if turns:
            await self._log.show_turns(turns)
        else:  # after the first picture: typesetting it is slow to load
            self._log.call_after_refresh(self._show_welcome)

    async def _show_welcome(self) -> None:
        async with self.changing:
            fresh = self._log.empty and not self._session.chat.conversation.turns
            if fresh and self._log.is_attached:
                await self._log.add(Help(self._welcome()))

    async def refresh(self) -> None:
        """Show what has happened since the last call."""
        async with self.changing:
            await self._catch_up()
            # While the user reads further up, nothing is drawn below; that is made up for later.
            if self._live is None or self._log.reading_back:
                self._painter.let_go()
            else:
                self._painter.hold(self._live)
                await self._live.sync(status_text.for_text(self._session))
                self._painter.paint(self._live)

    async def add(self, *widgets: Widget) -> None:
        """Show widgets that are not part of the conversation, after all events so far.

        A chat that has not been shown yet would replace them otherwise.
        """
        async with self.changing:
            await self._catch_up()
            for widget in widgets:
                await self._log.add(widget)

    async def add_note(self, text: str) -> None:
        """Show a line of the interface, once where it would follow itself."""
        async with self.changing:
            await self._catch_up()
            await self._log.note(text)

    async def load_older(self) -> None:
        """Show older messages."""
        async with self.changing:
            await self._log.load_older()

    async def show_oldest(self) -> None:
        """Scroll to the oldest message."""
        async with self.changing:
            await self._log.show_oldest()

    async def load_newer(self) -> None:
        """Show newer messages, after a jump away from the newest."""
        async with self.changing:
            await self._moved(self._log.load_newer())

    async def show_newest(self) -> None:
        """Scroll to the newest message and follow it."""
        async with self.changing:
            await self._moved(self._log.show_newest())

    async def show_turn(self, turn: ChatTurn) -> QuestionView | ReplyView | None:
        """Scroll to a message; returns its widget, None where the chat does not have it."""
        async with self.changing:
            await self._catch_up()
            return await self._moved(self._log.show_turn(turn))

    async def _moved(self, move: Awaitable[T]) -> T:
        """After what may mount other messages: what belongs below the newest one, and the reply
        that grows, where they are mounted again.
        """
        away, unsaved = not self._log.at_newest, self._session.unsaved
        told = self._log.says(unsaved)
        found = await move
        if self._log.at_newest and (away or told) and not self._log.says(unsaved):
            await self._tell_unsaved()
        self._follow()
        return found

    def _follow(self) -> None:
        """Stream into the widget of the growing reply, if it is mounted."""
        chat = self._session.chat
        shown = [turn for turn in chat.conversation.turns[-1:] if turn in chat.growing]
        self._live = self._log.view_of(shown[0]) if shown else None

    async def _catch_up(self) -> None:
        for notification in self._session.take_notifications():
            self._on_notification(notification)
            await self._show(notification)

    async def _show(self, notification: Notification) -> None:
        match notification:
            case ModelOpened(info):
                for notice in info.notices:
                    await self._log.add(Note(notice))
            case ReplyStarted(question, reply):
                await self._show_started(question, reply)
            case ReplyEnded(reply):
                await self._show_ended(reply)
            case CallsChanged(reply):
                if (view := self._log.view_of(reply)) is not None:
                    await view.sync()
            case ConversationChanged():
                await self._show_conversation()
            case NoticeAdded(text, error):
                await self._log.add(Note(text, error=error))
            case ReplyFailed() | EngineDied() | LoadFailed():
                await self._show_error(notification)

    async def _show_conversation(self) -> None:
        chat = self._session.chat
        self._live = None
        await self._log.show_turns(chat.conversation.turns)
        if not chat.conversation.turns:
            await self._log.add(Help(self._welcome()))
        await self._tell_unsaved()
        self._follow()

    async def _tell_unsaved(self) -> None:
        """Say below the newest message that the chat is not being saved."""
        if (unsaved := self._session.unsaved) is not None:
            await self._log.add(Note(unsaved, error=True))

    async def _show_ended(self, reply: ChatTurn) -> None:
        if self._live is not None and self._live.turn is reply:
            await self._live.sync()
            self._live = None
            self._painter.let_go()

    async def _show_started(self, question: ChatTurn | None, reply: ChatTurn) -> None:
        if reply not in self._session.chat.conversation.turns:
            return
        # Where the whole conversation was shown a moment ago, both may be mounted already.
        known = (turn for turn in (question, reply) if turn is not None)
        await self._moved(self._log.add_turns([t for t in known if not self._log.shows(t)]))
        self._live = self._log.view_of(reply)  # None for a finished reply that is not mounted

    async def _show_error(self, event: ReplyFailed | EngineDied | LoadFailed) -> None:
        if isinstance(event, LoadFailed) and self._session.engine.info is None:
            return  # the first load failed: the interface ends with this error
        line, chat = str(event.error), self._session.chat
        saved = chat.recorder.why_unsaved is None and not chat.conversation.empty
        kept = "The conversation is saved. " if saved else ""
        if isinstance(event.error, DeviceError) and not isinstance(event, ReplyFailed):
            smaller = ", with less memory" if isinstance(event.error, DeviceMemoryError) else ""
            line += f"\n{kept}The engine is started again{smaller}; then F9 continues the reply."
        elif not isinstance(event, ReplyFailed):
            line += f"\n{kept}Press Ctrl+R to start the engine again."
        await self._log.add(Note(line, error=True))
