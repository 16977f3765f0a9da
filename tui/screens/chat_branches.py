"""The chat screen's dealings with branches and with other chats."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from localspec.chats.values import Listed, date_of
from localspec.chats.words import terms
from localspec.config import paths
from localspec.errors import LocalspecError
from tui.render.block_splitter import plain
from tui.screens.chat_view import ChatView
from tui.session.ports import Phase
from tui.widgets.message import Columns, Note

T = TypeVar("T")
_LISTED = 20
ID_SHOWN = 8


class KeepingView(ChatView):
    """Again, otherwise, elsewhere."""

    _deleted: str | None = None
    """Id of the chat that was deleted last."""

    def ask(self, text: str) -> None:
        """Say something next, or in place of the question that is edited."""
        turn = self.session.chat.editing
        if turn is None:
            self.session.send(text)
        else:
            self.leave_edit()
            self.session.edit(turn, text)

    def action_again(self) -> None:
        """Have the last question answered once more; the other reply stays as a branch."""
        if not self.session.regenerate():
            self.hint("there is no question to answer yet")

    def action_continue(self) -> None:
        """Have the last reply go on where it was stopped."""
        if self.session.speaking or self.session.phase in (Phase.LOADING, Phase.DEAD):
            self.hint("a reply goes on when the model is loaded and free")
        elif not self.session.go_on():
            self.hint("the last reply is whole; /again makes another")

    def action_edit(self) -> None:
        """Take a question into the composer, once more the one before; its branch stays."""
        chat = self.session.chat
        if chat.editing is None:
            chat.set_aside = self._composer.text
        elif self._composer.text != chat.editing.text:
            self.hint("Enter asks what you changed here; Esc leaves it")
            return
        question = chat.edit_before()
        if question is None:
            self.hint("there is no question to edit yet")
            return
        self._composer.put(question.text)
        self._composer.focus()
        self._show_editing()
        self.hint("Enter asks this instead; the other branch is kept")

    def leave_edit(self) -> None:
        """Edit no question any more; what had been typed before comes back."""
        chat = self.session.chat
        chat.editing = None
        self._composer.put(chat.set_aside)
        chat.set_aside = ""
        self.unhint()
        self._show_editing()

    def _show_editing(self) -> None:
        """Say which question is edited, as long as one is."""
        chat = self.session.chat
        self._log.mark(chat.editing)
        title = None
        if chat.editing is not None:
            questions = chat.questions
            place = questions.index(chat.editing) + 1 if chat.editing in questions else 0
            title = f"question {place} of {len(questions)}" if place else "another branch"
            title = f"editing {title}: Esc leaves, {self.key_of('chat.edit')} the one before"
        self._composer.border_title = title
        self.refresh_bindings()

    def action_branch(self, step: int = 1) -> None:
        """Look at another branch of the chat."""
        place, count = self.session.conversation.place
        if count < 2:
            self.hint("this chat has one branch; /again and /edit make others")
        elif self.session.branch(step):
            self.hint(f"branch {place + step} of {count}")
        else:
            self.hint(f"this is the {'last' if step > 0 else 'first'} branch")

    async def list_chats(self, query: str) -> None:
        """List the chats used last, or the messages that hold the words of ``query``."""
        kept = self.session.kept
        if query:
            called = [i.info for i in await self._asked(kept.chats()) or () if _is_called(i, query)]
            hits = await self._asked(kept.search(query))
            found = [(info, _described(info.title, info.updated)) for info in called]
            found += [(hit.info, f"{hit.info.title}: {hit.excerpt}") for hit in hits or ()]
        else:
            listed = await self._asked(kept.chats())
            found = [(i.info, _described(i.info.title, i.info.updated)) for i in listed or ()]
        if found:
            rows = [(info.id[:ID_SHOWN], text) for info, text in found[:_LISTED]]
            more = [("", f"and {len(found) - _LISTED} more")] if len(found) > _LISTED else []
            await self._list_below(Columns([*rows, *more, ("", "/resume ID goes on with one")]))
        else:
            self.hint("no title or message holds this" if query else "there are no chats yet")

    async def resume(self, start: str) -> None:
        """Go on with another chat."""
        before = self.session.chat
        await self._asked(self.session.resume(start or None))
        if self.session.chat is before or before not in self.session.chats.all:
            return  # what is being written is for the chat that is looked at now
        before.typed = self._composer.text
        self._take_up()

    # -- open chats ----------------------------------------------------------------------------

    def _put_down(self) -> None:
        """What is being written stays with the chat that it is written for."""
        self.session.chat.typed = self._composer.text

    def _take_up(self) -> None:
        if self._composer.text != self.session.chat.typed:
            self._composer.put(self.session.chat.typed)
        self.session.chat.typed = ""
        self._composer.focus()
        self._show_editing()

    def action_new(self) -> None:
        """Open a new chat; what the others wait for goes on."""
        self._put_down()
        self.session.new()
        self._take_up()

    def action_next_chat(self, step: int = 1) -> None:
        """Look at the next open chat, or at the one before."""
        chats = self.session.chats
        if len(chats.all) == 1:
            self.hint("only this chat is open; Ctrl+N opens another")
        else:
            self._look_at((chats.place + step) % len(chats.all))

    def _look_at(self, place: int) -> None:
        chats = self.session.chats
        self._put_down()
        self.session.show(chats.all[place])
        self._take_up()
        self.hint_briefly(f"chat {place + 1} of {len(chats.all)}: {plain(chats.current.title)}")

    async def open_chats(self, words: str) -> None:
        """List the open chats, or look at one of them."""
        chats = self.session.chats
        if not words:
            await self._list_below(Columns([*self._opened(), ("", "/open N looks at one")]))
        elif words.isdecimal() and 1 <= int(words) <= len(chats.all):
            self._look_at(int(words) - 1)
        else:
            self.hint(f"/open takes a number from 1 to {len(chats.all)}")

    def _opened(self) -> list[tuple[str, str]]:
        session = self.session
        return [
            (
                f"{'●' if chat is session.chat else ' '} {number}",
                chat.title + ("  the model speaks" if chat is session.answered else ""),
            )
            for number, chat in enumerate(session.chats.all, 1)
        ]

    def close_chat(self) -> None:
        """Close this chat; it stays on the list of chats."""
        self.session.close()
        self._take_up()

    async def delete(self) -> None:
        """Take this chat off the list and close it; `undo` brings it back."""
        chat = self.session.chat
        if chat is self.session.answered:
            self.hint("the model speaks here; Esc stops it first")
            return
        if not chat.conversation.turns:
            self.hint("nothing was said here yet")
            return
        identity = chat.kept.info.id
        try:
            await chat.kept.remove(identity)
        except LocalspecError as error:
            await self._below(Note(str(error), error=True))
            return
        self._deleted = identity
        if self.session.chat is not chat:  # the person has gone on meanwhile
            return
        self.close_chat()
        self.hint(f'deleted "{plain(chat.title)}"; /undo brings it back')

    async def undo(self) -> None:
        """Bring back the chat that was deleted last."""
        if self._deleted is None:
            self.hint("nothing was deleted since the start; `localspec chats restore` does more")
            return
        identity, self._deleted = self._deleted, None
        try:
            await self.session.kept.restore(identity)
        except LocalspecError as error:
            await self._below(Note(str(error), error=True))
        else:
            await self.resume(identity)

    def rename(self, title: str) -> None:
        """Name this chat."""
        self.session.kept.rename(title)
        self.hint_briefly(f"this chat is called {title}")

    async def export(self, name: str) -> None:
        """Write this chat to a file."""
        if not self.session.conversation.turns:
            self.hint("nothing was said here yet")
            return
        path = paths.expand(name)
        try:
            await self.session.kept.export(path)
        except LocalspecError as error:
            await self._below(Note(str(error), error=True))
        else:
            await self._below(Note(f"written to {path.absolute()}"))
        self._log.anchor()

    async def import_chats(self, name: str) -> None:
        """Add the chats of an export; look at it if it is one."""
        found = await self._asked(self.session.kept.import_chats(paths.expand(name)))
        if not found:
            return
        if len(found) == 1:
            await self.resume(found[0].id)
            return
        rows = [(info.id[:ID_SHOWN], _described(info.title, info.updated)) for info in found]
        await self._list_below(Columns([*rows, ("", "imported; /resume ID goes on with one")]))

    async def _asked(self, answer: Awaitable[T]) -> T | None:
        """What is answered; None, and a line that says why, where it cannot be."""
        try:
            found = await answer
        except LocalspecError as error:
            await self._below(Note(str(error), error=True))
            self._log.anchor()
            return None
        return found


def _is_called(listed: Listed, query: str) -> bool:
    """Whether a title that a person gave holds all words of a search."""
    title, words = listed.info.title.casefold(), terms(query.casefold())
    return listed.info.named and bool(words) and all(word in title for word in words)


def _described(title: str, updated: float) -> str:
    return f"{date_of(updated):<16}  {title}"
