"""Into which rows of the file messages are written.

A row belongs to whoever knows it as it is. A window that changes a message, or goes on from one,
does so in its row only while that is as the window has last written or read it, and nobody else
has gone on from it. Else the window's own version becomes a row of its own beside it, and what
follows in that window follows that one: what is below a text was written by somebody who saw it.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from localspec.chats.calls import CALLS
from localspec.chats.rows import clean
from localspec.chats.values import ChatMessage, new_message_id_beside
from localspec.core.errors import ChatRefusedError

_ROW = """SELECT chat, role, created, (SELECT id FROM messages AS before
    WHERE before.id = messages.parent AND before.chat = messages.chat AND before.id < messages.id),
    text, iif(instr(details, ?), details, NULL) FROM messages WHERE id = ?"""
_CHILDREN = "SELECT id FROM messages WHERE parent = ?"


class _Content(NamedTuple):
    """What whoever goes on from a message has seen of it."""

    text: str
    calls: Any
    """With their results."""


class _Row(NamedTuple):
    chat: str
    role: str
    created: float
    parent: int | None
    """None where it is missing, as in a damaged file."""
    content: _Content


class Placing:
    """The messages of one transaction."""

    def __init__(
        self, db: sqlite3.Connection, path: Path, before: Mapping[int, ChatMessage] | None
    ) -> None:
        """``before`` are messages as the writer knows them to be in the file at ``path``, by id;
        None where it writes over any.
        """
        self._db, self._path, self._before = db, path, before
        self._own: set[int] = set()
        """Messages of this transaction."""
        self.written: list[tuple[str, ChatMessage]] = []
        """With the ids that they get, parents first."""
        self.new: set[str] = set()
        """The chats of messages that are not in the file yet."""
        self.moved: dict[int, int] = {}
        """The new rows of messages whose row is another's, by the old one."""

    def add(self, chat: str, m: ChatMessage) -> None:
        """One more message of a chat, behind its parent.

        Raises:
            ChatRefusedError: another message has its id.
        """
        row = self._row(m.id)
        if row is None:
            self.new.add(chat)
            self._hold(m.parent)
            moved = m.parent if m.parent is None else self.moved.get(m.parent, m.parent)
            self._write(chat, dataclasses.replace(m, parent=moved))
        elif (row.chat, row.role, row.created) != (chat, m.role, m.created):
            raise ChatRefusedError(
                f"another message in {self._path} has the same id; export the chat to keep it"
            )
        elif self._before is not None and self._is_anothers(row, m):
            self._move(row, m)
        else:
            self._write(chat, m)
        self._own.add(m.id)

    def _write(self, chat: str, m: ChatMessage) -> None:
        self.written.append((chat, m))

    def _hold(self, parent: int | None) -> None:
        """Keep the version of a message that is gone on from, where it is another one by now."""
        if parent is None or parent in self._own or not self._before:
            return
        ours, row = self._before.get(parent), self._row(parent)
        if ours is not None and row is not None and row.content != _content(ours):
            self._move(row, ours)
            self._own.add(parent)

    def _move(self, row: _Row, ours: ChatMessage) -> None:
        """Write our version beside the row that it had."""
        new = new_message_id_beside(ours.id)
        while self._row(new) is not None:
            new = new_message_id_beside(new)
        self.moved[ours.id] = new
        self._write(row.chat, dataclasses.replace(ours, id=new, parent=row.parent))

    def _is_anothers(self, row: _Row, m: ChatMessage) -> bool:
        """Whether what is in the row of a message has to stay as it is."""
        assert self._before is not None
        content, known = _content(m), self._before.get(m.id)
        if content == row.content:
            return False
        longer = m.text != row.content.text and content.text.startswith(row.content.text)
        if not longer and (known is None or _content(known) != row.content):
            return True
        found = self._db.execute(_CHILDREN, (m.id,))
        return any(id not in self._before and id not in self._own for (id,) in found)  # noqa: A001 - an id is what it is

    def _row(self, message: int) -> _Row | None:
        found = self._db.execute(_ROW, (f'"{CALLS}"', message)).fetchone()
        if found is None:
            return None
        chat, role, created, parent, text, details = found
        return _Row(chat, role, created, parent, _Content(text, _calls(details)))


def _content(m: ChatMessage) -> _Content:
    return _Content(clean(m.text), (m.details or {}).get(CALLS) or None)


def _calls(details: str | None) -> Any:
    try:
        found = None if details is None else json.loads(details)
    except (ValueError, TypeError, RecursionError):
        return None  # as `rows.message` reads it
    return found.get(CALLS) or None if isinstance(found, dict) else None
