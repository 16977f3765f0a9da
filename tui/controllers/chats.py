"""Chats that are open, and those that are saved."""

from __future__ import annotations

from localspec.chats.values import date_of
from localspec.core.errors import ChatsError, LocalspecError
from localspec.core.files import paths
from tui.controllers.branches import BranchController
from tui.controllers.chat_context import ChatContext
from tui.controllers.log_tools import MessageFinder
from tui.input.completion import Known
from tui.render.text import plain
from tui.session.archive import ChatArchive
from tui.session.session_engine import Phase


class ChatSwitcher:
    """Shows other chats; the text of the composer stays with its chat."""

    def __init__(self, context: ChatContext, branches: BranchController) -> None:
        self._context, self._session, self._feedback = context, context.session, context.feedback
        self._composer, self._branches = context.widgets.composer, branches
        self._deleted: str | None = None
        """Id of the chat that was deleted last."""

    def new(self) -> None:
        """Open a new chat; replies in the others continue."""
        self._store_typed()
        self._session.new()
        self._restore_typed()
        if self._session.chat.conversation.system:
            self._feedback.hint("same system prompt as before; /system none has none")

    def next_chat(self, step: int) -> None:
        """Show the next open chat, or the one before."""
        chats = self._session.chats
        if len(chats.all) == 1:
            self._feedback.hint("only this chat is open; Ctrl+N opens another")
        else:
            self._show((chats.place + step) % len(chats.all))

    def open_chats(self, words: str) -> None:
        """List the open chats, or show one of them by its number."""
        chats = self._session.chats
        if not words:
            self._pick_open()
        elif words.isdecimal() and len(words) < 10 and 1 <= int(words) <= len(chats.all):
            self._show(int(words) - 1)
        else:
            self._feedback.hint(f"/open takes a number from 1 to {len(chats.all)}")

    def _pick_open(self) -> None:
        from tui.screens.picking import RowPicker  # not needed for the first frame

        chats = [*self._session.chats.all]

        def closed(at: int | None) -> None:
            if at is not None and chats[at] in self._session.chats.all:
                self._show(self._session.chats.all.index(chats[at]))

        title = "Open chats: Enter shows one; so does /open N"
        picker = RowPicker(title, self._rows(), self._session.chats.place)
        self._context.screen.app.push_screen(picker, closed)

    async def resume(self, start: str) -> None:
        """Show a saved chat."""
        archive = self._session.chat.recorder.archive
        saved = await self._feedback.result(archive.open(start or None))
        if saved is None:
            return
        before = self._session.chat  # another one may have been shown while it was read
        if added := self._session.show_saved(saved):
            messages = "1 message" if added == 1 else f"{added} messages"
            keys = " and ".join(self._context.key(f"chat.branch_{w}") for w in ("before", "after"))
            self._feedback.hint(f"{messages} of another window added: {keys} show the branches")
        if self._session.chat is before or before not in self._session.chats.all:
            return  # the text of the composer belongs to the chat that is shown now
        before.typed = self._composer.text
        self._restore_typed()

    def close(self) -> None:
        """Close this chat; it stays in the list of chats. Up brings back what was typed in it, also
        before a question was changed.
        """
        self._composer.put_aside()
        if self._session.chat.editing is not None:
            self._composer.put(self._session.chat.set_aside)
            self._composer.put_aside()
        self._session.close()
        self._restore_typed()

    async def delete(self) -> None:
        """Delete this chat and close it; `undo` brings it back."""
        session, chat = self._session, self._session.chat
        if session.replies.of(chat):
            self._feedback.hint("the model is replying in this chat; Esc stops it")
            return
        if session.tools.of(chat):
            self._feedback.hint("a tool runs or asks in this chat; Esc stops it")
            return
        if chat.conversation.empty:
            self._feedback.hint("this chat is empty")
            return
        identity = chat.recorder.info.id
        chat.save_pending()  # `undo` brings back what is saved
        try:
            await chat.recorder.archive.remove(identity)
        except LocalspecError as error:
            if session.chat is chat:
                session.show(chat)  # with the questions that waited
            await self._feedback.note(str(error), error=True)
            return
        self._deleted = identity
        if session.chat is not chat:  # the user has switched to another chat meanwhile
            return
        self.close()
        self._feedback.hint(f'deleted "{plain(chat.title)}"; /undo brings it back')

    async def undo(self) -> None:
        """Bring back the chat that was deleted last."""
        if self._deleted is None:
            hint = "nothing deleted in this session; use `localspec chats restore`"
            self._feedback.hint(hint)
            return
        identity = self._deleted
        try:
            await self._session.chat.recorder.archive.restore(identity)
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
        else:
            self._deleted = None
            await self.resume(identity)

    def _show(self, place: int) -> None:
        chats = self._session.chats
        self._store_typed()
        self._session.show(chats.all[place])
        self._restore_typed()
        title = plain(chats.current.title)
        self._feedback.hint_briefly(f"chat {place + 1} of {len(chats.all)}: {title}")

    def _store_typed(self) -> None:
        self._session.chat.typed = self._composer.text

    def _restore_typed(self) -> None:
        chat = self._session.chat
        if self._composer.text != chat.typed:
            self._composer.put(chat.typed)
        chat.typed = ""
        self._composer.focus()
        self._branches.show_editing()

    def _rows(self) -> list[tuple[str, str]]:
        session = self._session
        return [
            (
                f"{'●' if chat is session.chat else ' '} {number}",
                f"{chat.title}  {session.work_in(chat)}".rstrip(),
            )
            for number, chat in enumerate(session.chats.all, 1)
        ]


_ID_SHOWN = 8


class ChatLibrary:
    """Commands about saved chats."""

    def __init__(self, context: ChatContext, switcher: ChatSwitcher, finder: MessageFinder) -> None:
        self._context, self._session, self._feedback = context, context.session, context.feedback
        self._switcher, self._finder = switcher, finder

    @property
    def _archive(self) -> ChatArchive:
        return self._session.chat.recorder.archive

    def pick(self, query: str = "") -> None:
        """Choose a saved chat; a message that the search found is shown."""
        from tui.screens.chats import ChatsScreen, Opened  # not needed for the first frame

        async def opened(chosen: Opened | None) -> None:
            if chosen is None:
                return
            # Another window may have gone on with a message of the search, also in this chat.
            if chosen.message is not None or chosen.id != self._session.chat.recorder.info.id:
                await self._switcher.resume(chosen.id)
            if chosen.message is not None:
                await self._finder.show_message(chosen.message, chosen.words)

        picker = ChatsScreen(self._archive, self._session.chat.recorder.info.id, query)
        self._context.screen.app.push_screen(picker, opened)

    def rename(self, title: str) -> None:
        """Set the title of this chat; without one, the model writes it."""
        if not title:
            self._ask_title()
            return
        self._session.chat.recorder.rename(title)
        self._feedback.hint_briefly(f"this chat is called {title}")

    def _ask_title(self) -> None:
        session = self._session
        if session.chat.conversation.last_reply is None:
            self._feedback.hint("there is nothing to name yet; /title TEXT gives a title")
        elif session.engine.phase is not Phase.READY:
            self._feedback.hint("the model is busy; /title TEXT gives a title")
        else:
            self._feedback.hint_briefly("the model writes a title")
            session.replies.titles.ask(session.chat)

    async def export(self, name: str) -> None:
        """Write this chat to a file."""
        chat = self._session.chat
        if chat.conversation.empty:
            self._feedback.hint("this chat is empty")
            return
        path = paths.expand(name)
        try:
            await self._archive.export(chat.recorder.in_memory(chat.conversation), path)
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
        else:
            await self._feedback.note(f"written to {path.absolute()}")
        self._context.widgets.log.anchor()

    async def import_chats(self, name: str) -> None:
        """Add the chats of an export; show it where it has one chat."""
        lines: list[str] = []
        path = paths.expand(name)
        found = await self._feedback.result(self._archive.import_chats(path, lines.append))
        if not found:
            return
        if len(found) == 1:
            await self._switcher.resume(found[0].id)
        else:
            rows = [(info.id[:_ID_SHOWN], _described(info.title, info.updated)) for info in found]
            await self._feedback.show_list("Imported: /resume ID continues one", rows)
        for line in lines:
            self._session.tell(line)

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
