"""All saved chats, asked in the saver's thread."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, Hit, Listed
from localspec.core.errors import ChatsError, ChatsFileError

T = TypeVar("T")


class ChatArchive:
    """Lists, finds and changes saved chats; every method raises ChatsError."""

    def __init__(self, saver: Saver | None) -> None:
        self._saver = saver

    async def chats(self, *, removed: bool = False) -> list[Listed]:
        """All chats, the one used last first."""
        return await self._ask(lambda store: store.listed(removed=removed))

    async def search(self, query: str) -> list[Hit]:
        """Messages that contain the words of ``query``, the best match first."""
        return await self._ask(lambda store: store.search(query))

    async def load(self, start: str | None = None) -> Chat:
        """The chat whose id starts with ``start``, or the one used last."""
        return await self._ask(
            lambda store: store.load((store.find(start) if start else store.last()).id)
        )

    async def remove(self, id: str) -> None:  # noqa: A002 - the word of ChatInfo
        """Delete a chat; `restore` brings it back."""
        await self._ask(lambda store: store.remove(id))
        if self._saver is not None:
            self._saver.forget(id)

    async def restore(self, id: str) -> None:  # noqa: A002 - as above
        """Undo `remove`."""
        await self._ask(lambda store: store.restore(id))

    async def export(self, shown: Chat, path: Path) -> None:
        """Write a chat to a new file: what is ``shown``, and branches that another window saved.

        A chat that is not saved, or cannot be read, is written as it is shown.
        """
        from localspec.chats import transfer  # not needed for the first picture

        as_json = transfer.form_of(path) == "json"
        try:
            saved = await self._ask(lambda store: store.load(shown.info.id))
        except ChatsError:  # erased elsewhere, not saved, or no file that can be read
            saved = shown
        chat = _together(saved, shown)
        text = transfer.to_json([chat]) if as_json else transfer.to_markdown(chat)
        await asyncio.to_thread(transfer.write, path, text)

    async def import_chats(self, path: Path) -> list[ChatInfo]:
        """Add the chats of a JSON export under new ids.

        Raises:
            LocalspecError: the file cannot be read, is no export, or the chats cannot be saved.
        """
        from localspec.chats import transfer

        text = await asyncio.to_thread(_text_of, path)
        try:
            chats = await asyncio.to_thread(transfer.from_json, text)
        except ChatsFileError as error:
            raise ChatsFileError(f"{path}: {error}") from None
        await self._ask(lambda store: store.put_chats(chats))
        return [chat.info for chat in chats]

    async def _ask(self, function: Callable[[ChatStore], T]) -> T:
        if self._saver is None:
            raise ChatsError("chats are not saved here")
        return await asyncio.wrap_future(self._saver.call(function))


def _together(saved: Chat, shown: Chat) -> Chat:
    """The messages of both, those shown where they differ; title and dates as saved."""
    messages = {m.id: m for m in (*saved.messages, *shown.messages)}
    info = dataclasses.replace(saved.info, system=shown.info.system, leaf=shown.info.leaf)
    return Chat(info, tuple(messages[key] for key in sorted(messages)))


def _text_of(path: Path) -> str:
    from localspec.chats import transfer

    try:
        return transfer.read_file(path).decode("utf-8")
    except OSError as error:
        raise ChatsError(f"cannot read {path}: {error.strerror}") from None
    except ChatsFileError as error:
        raise ChatsFileError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise ChatsError(f"{path} is not UTF-8; an export of localspec is") from None
