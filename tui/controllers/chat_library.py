"""The saved chats: list and search them, rename, export and import."""

from __future__ import annotations

from localspec.chats.values import Listed, date_of
from localspec.chats.words import terms
from localspec.config import paths
from localspec.errors import ChatsError, LocalspecError
from tui.controllers.chat_switcher import ChatSwitcher
from tui.controllers.feedback import Feedback
from tui.input.completion import Known
from tui.session.archive import ChatArchive
from tui.session.session import Session
from tui.widgets.chat_log import ChatLog

_LISTED = 20
_ID_SHOWN = 8


class ChatLibrary:
    """Commands about saved chats."""

    def __init__(
        self, session: Session, feedback: Feedback, log: ChatLog, switcher: ChatSwitcher
    ) -> None:
        self._session, self._feedback = session, feedback
        self._log, self._switcher = log, switcher

    @property
    def _archive(self) -> ChatArchive:
        return self._session.chat.recorder.archive

    async def list_chats(self, query: str) -> None:
        """List the chats used last, or the messages that contain the words of ``query``."""
        result = self._feedback.result
        listed = await result(self._archive.chats()) or []
        if query:
            named = [chat.info for chat in listed if _has_words(chat, query)]
            hits = await result(self._archive.search(query))
            found = [(info, _described(info.title, info.updated)) for info in named]
            found += [(hit.info, f"{hit.info.title}: {hit.excerpt}") for hit in hits or ()]
        else:
            found = [(i.info, _described(i.info.title, i.info.updated)) for i in listed]
        if found:
            rows = [(info.id[:_ID_SHOWN], text) for info, text in found[:_LISTED]]
            more = [("", f"and {len(found) - _LISTED} more")] if len(found) > _LISTED else []
            await self._feedback.show_list([*rows, *more, ("", "/resume ID continues one")])
        else:
            none = "no title or message contains this" if query else "there are no chats yet"
            self._feedback.hint(none)

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
            await self._archive.export(chat.recorder.info.id, path)
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
        await self._feedback.show_list([*rows, ("", "imported; /resume ID continues one")])

    async def known(self) -> Known:
        """The chats that the composer can complete; none where they cannot be read."""
        try:
            listed = await self._archive.chats()
        except ChatsError:  # the command itself reports it
            listed = []
        titles = {chat.info.id[:_ID_SHOWN]: chat.info.title for chat in listed}
        opened = enumerate(self._session.chats.all, 1)
        return Known(titles, {str(number): chat.title for number, chat in opened})


def _has_words(listed: Listed, query: str) -> bool:
    """Whether a title that the user chose contains all words of a search."""
    title, words = listed.info.title.casefold(), terms(query.casefold())
    return listed.info.named and bool(words) and all(word in title for word in words)


def _described(title: str, updated: float) -> str:
    return f"{date_of(updated):<16}  {title}"
