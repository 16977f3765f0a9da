"""The saved chats: choose, search, rename, export and import them."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen

from localspec.chats.values import date_of
from localspec.config import paths
from localspec.errors import ChatsError, LocalspecError
from tui.controllers.chat_switcher import ChatSwitcher
from tui.controllers.feedback import Feedback
from tui.controllers.message_finder import MessageFinder
from tui.input.completion import Known
from tui.session.archive import ChatArchive
from tui.session.session import Session
from tui.widgets.chat_log import ChatLog

_ID_SHOWN = 8


class ChatLibrary:
    """Commands about saved chats."""

    def __init__(
        self,
        screen: Screen[Any],
        session: Session,
        feedback: Feedback,
        log: ChatLog,
        switcher: ChatSwitcher,
        finder: MessageFinder,
    ) -> None:
        self._screen, self._session, self._feedback = screen, session, feedback
        self._finder = finder
        self._log, self._switcher = log, switcher

    @property
    def _archive(self) -> ChatArchive:
        return self._session.chat.recorder.archive

    def pick(self, query: str = "") -> None:
        """Choose a saved chat; a message that the search found is shown."""
        from tui.screens.chats import ChatsScreen, Opened  # not needed for the first frame

        async def opened(chosen: Opened | None) -> None:
            if chosen is None:
                return
            if chosen.id != self._session.chat.recorder.info.id:
                await self._switcher.resume(chosen.id)
            if chosen.message is not None:
                await self._finder.show_message(chosen.message, chosen.words)

        picker = ChatsScreen(self._archive, self._session.chat.recorder.info.id, query)
        self._screen.app.push_screen(picker, opened)

    def rename(self, title: str) -> None:
        """Set the title of this chat."""
        self._session.chat.recorder.rename(title)
        self._feedback.hint_briefly(f"this chat is called {title}")

    async def export(self, name: str) -> None:
        """Write this chat to a file."""
        chat = self._session.chat
        if not chat.conversation.turns:
            self._feedback.hint("this chat is empty")
            return
        path = paths.expand(name)
        try:
            await self._archive.export(chat.recorder.in_memory(chat.conversation), path)
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
        else:
            await self._feedback.note(f"written to {path.absolute()}")
        self._log.anchor()

    async def import_chats(self, name: str) -> None:
        """Add the chats of an export; show it where it has one chat."""
        found = await self._feedback.result(self._archive.import_chats(paths.expand(name)))
        if not found:
            return
        if len(found) == 1:
            await self._switcher.resume(found[0].id)
            return
        rows = [(info.id[:_ID_SHOWN], _described(info.title, info.updated)) for info in found]
        await self._feedback.show_list("Imported: /resume ID continues one", rows)

    async def known(self) -> Known:
        """The chats that the composer can complete; none where they cannot be read."""
        try:
            listed = await self._archive.chats()
        except ChatsError:  # the command itself reports it
            listed = []
        titles = {chat.info.id[:_ID_SHOWN]: chat.info.title for chat in listed}
        opened = enumerate(self._session.chats.all, 1)
        return Known(titles, {str(number): chat.title for number, chat in opened})


def _described(title: str, updated: float) -> str:
    return f"{date_of(updated):<16}  {title}"
