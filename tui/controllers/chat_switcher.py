"""Which chat is shown: new, open, resumed, closed and deleted ones."""

from __future__ import annotations

from localspec.errors import LocalspecError
from tui.controllers.branches import BranchController
from tui.controllers.feedback import Feedback
from tui.render.text import plain
from tui.session.session import Session
from tui.widgets.composer import Composer


class ChatSwitcher:
    """Shows other chats; the text of the composer stays with its chat."""

    def __init__(
        self,
        session: Session,
        feedback: Feedback,
        composer: Composer,
        branches: BranchController,
    ) -> None:
        self._session, self._feedback = session, feedback
        self._composer, self._branches = composer, branches
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

    async def open_chats(self, words: str) -> None:
        """List the open chats, or show one of them by its number."""
        chats = self._session.chats
        if not words:
            await self._feedback.show_list("Open chats: /open N shows one", self._rows())
        elif words.isdecimal() and 1 <= int(words) <= len(chats.all):
            self._show(int(words) - 1)
        else:
            self._feedback.hint(f"/open takes a number from 1 to {len(chats.all)}")

    async def resume(self, start: str) -> None:
        """Show a saved chat."""
        before = self._session.chat
        await self._feedback.result(self._session.resume(start or None))
        if self._session.chat is before or before not in self._session.chats.all:
            return  # the text of the composer belongs to the chat that is shown now
        before.typed = self._composer.text
        self._restore_typed()

    def close(self) -> None:
        """Close this chat; it stays in the list of chats."""
        self._session.close()
        self._restore_typed()

    async def delete(self) -> None:
        """Delete this chat and close it; `undo` brings it back."""
        session, chat = self._session, self._session.chat
        if session.replies.of(chat):
            self._feedback.hint("the model is replying in this chat; Esc stops it")
            return
        if not chat.conversation.turns:
            self._feedback.hint("this chat is empty")
            return
        identity = chat.recorder.info.id
        try:
            await chat.recorder.archive.remove(identity)
        except LocalspecError as error:
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
        identity, self._deleted = self._deleted, None
        try:
            await self._session.chat.recorder.archive.restore(identity)
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
        else:
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
                chat.title + ("  the model is replying" if session.replies.of(chat) else ""),
            )
            for number, chat in enumerate(session.chats.all, 1)
        ]
