"""All saved chats: lists, finds, opens, changes, exports and imports them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from localspec.chats.row_ids import RowIds
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Hit, Listed
from localspec.core.errors import ChatsError, ChatsFileError
from localspec.core.files import checked
from localspec.core.in_thread import in_thread
from tui.session import reply_record
from tui.session.conversation import ChatTurn
from tui.session.versions import together

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
        chat = together(saved, shown)

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
