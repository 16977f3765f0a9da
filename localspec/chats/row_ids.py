"""Rows of messages that have another id in the file than in this window."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from localspec.chats import rows
from localspec.chats.values import Chat, ChatInfo, ChatMessage


class RowIds:
    """The rows of one window's messages. Where another window has made something else of a message,
    what this one has made of it moves to a row of its own (`Placing`): the message keeps its id
    here, and what the other window has made of it is shown here under the id of the new row.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._messages: dict[int, int] = {}

    def move(self, row: int, new: int) -> None:
        """The message of a row has another one from now on."""
        message = self.message(row)
        self._rows[message], self._messages[new] = new, message
        self._rows[new], self._messages[row] = row, new

    def row(self, message: int) -> int:
        """The row of a message."""
        return self._rows.get(message, message)

    def message(self, row: int) -> int:
        """The id that a row has in this window."""
        return self._messages.get(row, row)

    # -- as the file has it --------------------------------------------------------------------

    def info(self, info: ChatInfo) -> ChatInfo:
        """What is saved of a chat."""
        leaf = None if info.leaf is None else self.row(info.leaf)
        return info if leaf == info.leaf else dataclasses.replace(info, leaf=leaf)

    def saved(self, m: ChatMessage) -> ChatMessage:
        """What is saved of a message."""
        return _renamed(m, self._rows)

    def by_row(self, messages: Mapping[int, ChatMessage]) -> Mapping[int, ChatMessage]:
        """Messages by their rows."""
        if not self._rows:
            return messages
        return {self.row(key): self.saved(m) for key, m in list(messages.items())}

    # -- as this window has it -----------------------------------------------------------------

    def here(self, chat: Chat) -> Chat:
        """A chat that was read from the file."""
        if not self._rows:
            return chat
        info = chat.info
        if info.leaf is not None:
            info = dataclasses.replace(info, leaf=self.message(info.leaf))
        messages = (_renamed(m, self._messages) for m in chat.messages)
        return Chat(info, rows.joined(sorted(messages, key=lambda m: m.id)))


def _renamed(m: ChatMessage, ids: Mapping[int, int]) -> ChatMessage:
    if m.id not in ids and m.parent not in ids:
        return m
    parent = None if m.parent is None else ids.get(m.parent, m.parent)
    return dataclasses.replace(m, id=ids.get(m.id, m.id), parent=parent)
