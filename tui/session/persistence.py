"""The conversation on disk: saved as it happens, found again, resumed."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from localspec.chats import transfer
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Hit, Listed, started, title_of
from localspec.errors import ChatsError, ChatsFileError
from localspec.models.catalog.reference import portable
from tui.session import reply_record
from tui.session.conversation import Conversation, Turn

T = TypeVar("T")


class Kept:
    """The chat that is open, as it is kept; without a saver nothing is."""

    def __init__(
        self, saver: Saver | None = None, model: str | None = None, draft: str | None = None
    ) -> None:
        """``model`` and ``draft`` are how the person asked for them."""
        self._saver = saver
        self._model, self._draft = portable(model), portable(draft)
        self._new = True
        self.info = started(model=self._model, draft=self._draft)
        self.on_news: Callable[[str], None] = _silent
        """Called in the event loop with lines for the person: not being saved, saved again."""

    def listen(self) -> None:
        """From now on tell what the saver says; to be called in the event loop."""
        if self._saver is not None:
            loop = asyncio.get_running_loop()
            self._saver.tell = lambda line: _quietly(loop, self.on_news, line)
            if self._saver.failing is not None:
                self.on_news(f"this chat is not being saved: {self._saver.failing}")

    def close(self) -> str | None:
        """Save what waits; why that failed, or None."""
        return self._saver.close() if self._saver is not None else None

    # -- the open chat -------------------------------------------------------------------------

    def another(self) -> Kept:
        """For another chat in the same place; it is saved from its first message on."""
        return Kept(self._saver, self._model, self._draft)

    def resume(self, chat: Chat, conversation: Conversation) -> None:
        """Put a chat into the conversation and go on with it."""
        same = self._model in (None, chat.info.model)
        self.info = self._answered(chat.info)
        self._new = False
        conversation.system = chat.info.system
        conversation.load([_turn(m) for m in chat.messages], chat.info.leaf)
        if not same:
            conversation.forget_how()

    def look(self, conversation: Conversation) -> None:
        """Save which branch is looked at, and the system prompt."""
        self._update(conversation)
        if self._saver is not None and not self._new:
            self._saver.save(self.info)

    def use_model(self, model: str, draft: str | None) -> None:
        """Another model answers from now on, or another draft helps it."""
        self._model, self._draft = portable(model), portable(draft)
        self.info = self._answered(self.info)

    def _answered(self, info: ChatInfo) -> ChatInfo:
        """By the model of now."""
        if self._model is None:
            return info
        return dataclasses.replace(info, model=self._model, draft=self._draft)

    def rename(self, title: str) -> None:
        """Give the open chat a title that stays."""
        self.info = dataclasses.replace(self.info, title=title, named=True)
        if self._saver is not None and not self._new:
            self._saver.save(self.info)

    def follow(
        self, conversation: Conversation, question: Turn | None, reply: Turn
    ) -> Callable[[], None]:
        """Save a question, and its reply as it grows; to be called when the reply has ended."""
        if question is not None and self._new and not self.info.named:
            self.info = dataclasses.replace(self.info, title=title_of(question.text))
        self._new = False
        self._update(conversation)
        saver, info = self._saver, self.info
        if saver is None:
            return lambda: None
        saver.save(info, *(_message(turn) for turn in (question, reply) if turn is not None))
        saver.follow(lambda: (info.id, _message(reply)))

        def ended() -> None:
            saver.follow(None)
            # The chat may have been renamed, or left, in the meantime.
            now = self.info if self.info.id == info.id else info
            saver.save(dataclasses.replace(now, updated=time.time()), _message(reply))

        return ended

    def _update(self, conversation: Conversation) -> None:
        self.info = dataclasses.replace(
            self._answered(self.info),
            system=conversation.system,
            leaf=conversation.turns[-1].id if conversation.turns else None,
            updated=time.time(),
        )

    # -- all chats -----------------------------------------------------------------------------

    async def chats(self, *, removed: bool = False) -> list[Listed]:
        """All chats, the one used last first. All of these raise ChatsError."""
        return await self._ask(lambda store: store.listed(removed=removed))

    async def search(self, query: str) -> list[Hit]:
        """Messages that hold the words of ``query``, the best first."""
        return await self._ask(lambda store: store.search(query))

    async def load(self, start: str | None = None) -> Chat:
        """The chat whose id begins so, or the last one."""
        return await self._ask(
            lambda store: store.load((store.find(start) if start else store.last()).id)
        )

    async def remove(self, id: str) -> None:  # noqa: A002 - an id is what it is
        """Take a chat off the list; `restore` undoes it."""
        await self._ask(lambda store: store.remove(id))

    async def restore(self, id: str) -> None:  # noqa: A002 - as above
        """Undo `remove`."""
        await self._ask(lambda store: store.restore(id))

    async def export(self, path: Path) -> None:
        """Write the open chat to a new file: JSON for ``.json``, else Markdown."""
        identity = self.info.id
        chat = await self._ask(lambda store: store.load(identity))
        as_json = path.suffix.lower() == ".json"
        text = transfer.to_json([chat]) if as_json else transfer.to_markdown(chat)
        await asyncio.to_thread(transfer.write, path, text)

    async def import_chats(self, path: Path) -> list[ChatInfo]:
        """Add the chats of a JSON export; they get new ids.

        Raises:
            LocalspecError: it cannot be read, is no such file, or they cannot be saved.
        """
        text = await asyncio.to_thread(_text_of, path)
        try:
            chats = await asyncio.to_thread(transfer.from_json, text)
        except ChatsFileError as error:
            raise ChatsFileError(f"{path}: {error}") from None
        await self._ask(lambda store: store.put_chats(chats))
        return [chat.info for chat in chats]

    async def _ask(self, function: Callable[[ChatStore], T]) -> T:
        if self._saver is None:
            raise ChatsError("chats are not kept here")
        return await asyncio.wrap_future(self._saver.call(function))


def _text_of(path: Path) -> str:
    try:
        return transfer.read_file(path).decode("utf-8")
    except OSError as error:
        raise ChatsError(f"cannot read {path}: {error.strerror}") from None
    except ChatsFileError as error:
        raise ChatsFileError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise ChatsError(f"{path} is not UTF-8; an export of localspec is") from None


def _silent(line: str) -> None:
    """Nobody listens yet."""


def _quietly(loop: asyncio.AbstractEventLoop, tell: Callable[[str], None], line: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, line)


def _message(turn: Turn) -> ChatMessage:
    details = reply_record.details(turn)
    return ChatMessage(turn.id, turn.parent, turn.role, turn.text, turn.created, turn.end, details)


def _turn(message: ChatMessage) -> Turn:
    turn = Turn(
        message.role,
        message.text,
        id=message.id,
        parent=message.parent,
        created=message.created,
    )
    if message.role == "assistant":
        turn.end = message.end or "failed"  # whoever wrote it was killed
        reply_record.restore(turn, message.details or {})
    return turn
