"""Chats on disk: the open one, saved as it grows and put back when resumed; and all saved ones."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from localspec.chats import calls, rows
from localspec.chats.calls import SavedCall
from localspec.chats.record import ChatRecord
from localspec.chats.row_ids import RowIds
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Hit, Listed, started
from localspec.core.errors import ChatsError, ChatsFileError
from localspec.core.files import checked
from localspec.core.in_thread import in_thread
from localspec.models.catalog.portable import portable
from tui.session import reply_record
from tui.session.conversation import ChatTurn, Conversation

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class SavedChat:
    """A chat as it was saved, and the turns of its messages."""

    chat: Chat
    turns: tuple[ChatTurn, ...]

    @classmethod
    def of(cls, chat: Chat) -> SavedChat:
        """With new turns. A thread makes those of a long chat: they take half a second."""
        return cls(chat, tuple(_turn(message) for message in chat.messages))


class ChatArchive:
    """Lists, finds and changes saved chats; every method raises ChatsError."""

    def __init__(self, saver: Saver | None) -> None:
        self._saver = saver

    async def chats(self, *, removed: bool = False) -> list[Listed]:
        """All chats, the one used last first."""
        return await self._ask(lambda store, _: store.listed(removed=removed))

    async def search(self, query: str) -> list[Hit]:
        """Messages that contain the words of ``query``, the best match first."""
        return await self._ask(
            lambda store, ids: [
                dataclasses.replace(hit, message=ids.message(hit.message))
                for hit in store.search(query)
            ]
        )

    async def load(self, start: str | None = None) -> Chat:
        """The chat whose id starts with ``start``, or the one used last."""
        return await self._ask(
            lambda store, ids: ids.here(
                store.load((store.find(start) if start else store.last()).id)
            )
        )

    async def open(self, start: str | None = None) -> SavedChat:
        """The same chat as `load`, to go on with."""
        chat = await self.load(start)
        return await in_thread(lambda _: SavedChat.of(chat))

    async def remove(self, id: str) -> None:  # noqa: A002 - the word of ChatInfo
        """Delete a chat; `restore` brings it back."""
        await self._ask(lambda store, _: store.remove(id))
        if self._saver is not None:
            self._saver.forget(id)

    async def restore(self, id: str) -> None:  # noqa: A002 - as above
        """Undo `remove`."""
        await self._ask(lambda store, _: store.restore(id))

    async def export(self, shown: Chat, path: Path) -> None:
        """Write a chat to a new file: what is ``shown``, and branches that another window saved.

        A chat that is not saved, or cannot be read, is written as it is shown.
        """
        from localspec.chats import transfer  # not needed for the first picture

        as_json = transfer.form_of(path) == "json"
        try:
            saved = await self._ask(lambda store, ids: ids.here(store.load(shown.info.id)))
        except ChatsError:  # erased elsewhere, not saved, or no file that can be read
            saved = shown
        chat = _together(saved, shown)

        def write() -> None:
            transfer.write(
                path, transfer.to_json([chat]) if as_json else transfer.to_markdown(chat)
            )

        await asyncio.to_thread(write)

    async def import_chats(self, path: Path, tell: Callable[[str], None]) -> list[ChatInfo]:
        """Add the chats of a JSON export under new ids. ``tell`` is called, in another thread, with
        lines about what of it is left out.

        Raises:
            LocalspecError: the file cannot be read, is no export, or the chats cannot be saved.
        """
        from localspec.chats import transfer

        text = await in_thread(lambda _: _text_of(path))
        try:
            chats = await in_thread(lambda _: transfer.from_json(text, tell))
        except ChatsFileError as error:
            raise ChatsFileError(f"{path}: {error}") from None
        await self._ask(lambda store, _: store.put_chats(chats))
        return [chat.info for chat in chats]

    async def _ask(self, function: Callable[[ChatStore, RowIds], T]) -> T:
        saver = self._saver
        if saver is None:
            raise ChatsError("chats are not saved here")
        return await asyncio.wrap_future(saver.call(lambda store: function(store, saver.rows)))


def _is_news(theirs: ChatTurn, ours: ChatTurn | None) -> bool:
    """Whether a turn as it is saved says more than the one here. Without an end, that one grows."""
    if ours is None:
        return True
    if ours.role == "user" or ours.end is None or not theirs.text.startswith(ours.text):
        return False
    return _progress(theirs, theirs.calls) > _progress(ours, ours.calls)


def _differs(theirs: ChatTurn, ours: ChatTurn) -> bool:
    """Whether whoever goes on from a turn as it is saved has seen something else than is here."""
    states = ([call.state for call in turn.calls] for turn in (theirs, ours))
    return theirs.text != rows.clean(ours.text) or next(states) != next(states)


def _progress(reply: ChatTurn | ChatMessage, called: Iterable[SavedCall]) -> tuple[int, bool, int]:
    """How far a reply has come; one that broke off may be growing still, in another window."""
    over = sum(call.state not in ("written", "waiting", "running") for call in called)
    return len(reply.text), reply.end not in (None, "failed"), over


def _longer(saved: ChatMessage, shown: ChatMessage | None) -> bool:
    """Whether a message has grown in another window since it was read here."""
    if shown is None or shown.role == "user" or not saved.text.startswith(shown.text):
        return shown is None
    now, then = (_progress(m, calls.saved(m.details)[0]) for m in (saved, shown))
    return now > then


def _together(saved: Chat, shown: Chat) -> Chat:
    """The messages of both, those shown where they differ, unless another window has gone on with
    a reply; title and dates as saved.
    """
    messages = {m.id: m for m in shown.messages}
    messages |= {m.id: m for m in saved.messages if _longer(m, messages.get(m.id))}
    info = dataclasses.replace(saved.info, system=shown.info.system, leaf=shown.info.leaf)
    return Chat(info, tuple(messages[key] for key in sorted(messages)))


def _text_of(path: Path) -> str:
    from localspec.chats import transfer

    try:
        with checked.opened(path) as file:
            return transfer.read(file).decode("utf-8")
    except OSError as error:
        raise ChatsError(f"cannot read {path}: {error.strerror}") from None
    except ChatsFileError as error:
        raise ChatsFileError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise ChatsError(f"{path} is not UTF-8; an export of localspec is") from None


class ChatRecorder:
    """Saves one open chat; without a saver nothing is saved."""

    def __init__(
        self, saver: Saver | None = None, model: str | None = None, draft: str | None = None
    ) -> None:
        """``model`` and ``draft`` are the names that the user gave."""
        self._saver = saver
        self._model, self._draft = portable(model), portable(draft)
        info = started(model=self._model, draft=self._draft)
        self._record = ChatRecord(saver, info, stored=False)
        self.archive = ChatArchive(saver)
        """All chats that are saved in the same place."""
        self.on_notice: Callable[[str], None] = lambda _: None
        """Called in the event loop with lines for the user: saving fails, or works again."""
        self.on_notice_of: Callable[[str, str], None] = lambda *_: None
        """Called likewise, with the id of a chat and a line about it alone."""

    @property
    def info(self) -> ChatInfo:
        """Title, model and branch of the chat."""
        return self._record.info

    def listen(self) -> None:
        """Pass the saver's notices on from now on; to be called in the event loop."""
        if self._saver is not None:
            loop = asyncio.get_running_loop()
            self._saver.tell = lambda line: _in_loop(loop, self.on_notice, line)
            self._saver.tell_of = lambda chat, line: _in_loop(loop, self.on_notice_of, chat, line)
            if self._saver.failing is not None:
                self.on_notice(f"this chat is not being saved: {self._saver.failing}")

    @property
    def saves(self) -> bool:
        """Whether there is a file to save to."""
        return self._saver is not None

    @property
    def why_unsaved(self) -> str | None:
        """Why this chat cannot be saved; None if it can."""
        return self._saver.why_unsaved(self.info.id) if self._saver is not None else None

    def close(self) -> tuple[str, ...]:
        """Save what is pending; a line for each reason why something is not saved."""
        return self._saver.close() if self._saver is not None else ()

    def leave(self) -> None:
        """The chat is not open here any more."""
        if self._saver is not None:
            self._saver.leave(self.info.id)

    def another(self) -> ChatRecorder:
        """A recorder for a new chat in the same place; it is saved from its first message on."""
        return ChatRecorder(self._saver, self._model, self._draft)

    def resume(self, saved: SavedChat, conversation: Conversation) -> None:
        """Load a saved chat into ``conversation`` and save to it from now on."""
        info = saved.chat.info
        if self._saver is not None:
            self._saver.know(saved.chat)
        self._record = ChatRecord(self._saver, info, stored=True)
        self._set_models()
        conversation.system = info.system
        self._forget_how_others_reply(saved.turns)
        conversation.load(saved.turns, info.leaf)

    def take_in(self, saved: SavedChat, conversation: Conversation) -> int:
        """Add what another window has saved in this chat, and has made of replies that are here;
        how many messages.
        """
        ours = {turn.id: turn for turn in conversation.all_turns}
        gone_on = {turn.parent for turn in ours.values()}  # since the file was read, perhaps
        new: list[ChatTurn] = []
        apart = set[int | None]()
        """Turns that get a row of their own once ours are saved: what follows them in the file was
        written below another text, and is taken in when it has that here.
        """
        for turn in saved.turns:  # parents first
            shown = ours.get(turn.id)
            if turn.parent in apart:
                apart.add(turn.id)
            elif turn.id not in gone_on and _is_news(turn, shown):
                new.append(turn)
            elif shown is not None and _differs(turn, shown):
                apart.add(turn.id)
        if self._saver is not None:
            taken = {turn.id for turn in new}
            theirs = [m for m in saved.chat.messages if m.id in taken]
            self._saver.know_messages(self.info.id, theirs)
        self._forget_how_others_reply(new)
        conversation.take_in(new)
        return len(new)

    def _forget_how_others_reply(self, turns: Iterable[ChatTurn]) -> None:
        """Only its own replies can be made again by the model that answers."""
        for turn in turns:
            if self._model not in (None, turn.last_model):
                turn.saved_how = None

    def in_memory(self, conversation: Conversation) -> Chat:
        """The chat as it is on the screen, saved or not."""
        leaf = conversation.turns[-1].id if conversation.turns else None
        info = dataclasses.replace(self.info, system=conversation.system, leaf=leaf)
        return Chat(info, tuple(_message(turn) for turn in conversation.all_turns))

    def save_view(self, conversation: Conversation) -> None:
        """Save which branch is shown, and the system prompt."""
        self._record.set_system(conversation.system)
        self._record.show_branch(conversation.turns[-1].id if conversation.turns else None)

    def use_model(self, model: str, draft: str | None) -> None:
        """Another model answers from now on, or another draft model helps it."""
        self._model, self._draft = portable(model), portable(draft)
        self._set_models()

    def _set_models(self) -> None:
        if self._model is not None:
            self._record.set_models(self._model, self._draft)

    def rename(self, title: str) -> None:
        """Set a title that later questions do not change."""
        self._record.rename(title)

    def propose_title(self, title: str) -> None:
        """Set a title that the model wrote; one that the user gave stays."""
        self._record.propose_title(title)

    def begin_reply(
        self, conversation: Conversation, question: ChatTurn | None, reply: ChatTurn
    ) -> Callable[[], None]:
        """Save a question, and its reply as it grows; returns what saves the end of the reply."""
        record = self._record
        record.set_system(conversation.system)
        asked = None if question is None else _message(question)
        record.begin_reply(asked, lambda: _message(reply))
        return lambda: record.end_reply(_message(reply))

    def save_calls(self, reply: ChatTurn) -> None:
        """Save how far the calls of a reply have come, whose text has ended: what has run may have
        changed something, and is not to be run again because nobody knows of it.
        """
        self._record.end_reply(_message(reply))

    def ask(self, conversation: Conversation, question: ChatTurn) -> None:
        """Save a question that is not answered yet."""
        self._record.set_system(conversation.system)
        self._record.ask(_message(question))
        self.save_view(conversation)


def _in_loop(loop: asyncio.AbstractEventLoop, tell: Callable[..., None], *words: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, *words)


def _message(turn: ChatTurn) -> ChatMessage:
    details = reply_record.details(turn)
    return ChatMessage(turn.id, turn.parent, turn.role, turn.text, turn.created, turn.end, details)


def _turn(message: ChatMessage) -> ChatTurn:
    turn = ChatTurn(
        message.role,
        message.text,
        id=message.id,
        parent=message.parent,
        created=message.created,
        model=message.model,
        draft=message.draft,
    )
    if message.role == "assistant":
        turn.end = message.ended
        reply_record.restore(turn, message.details or {})
    return turn
