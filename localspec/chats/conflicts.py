"""Messages that the file has already, perhaps by another process: none is overwritten unseen."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from localspec.chats import rows
from localspec.chats.values import ChatMessage, new_message_id
from localspec.errors import ChatRefusedError

_COPY = f"""INSERT INTO messages (chat, {rows.MESSAGE})
SELECT chat, ?, parent, role, text, created, ended, details FROM messages WHERE id = ?"""  # noqa: S608 - names of columns


def is_new(
    db: sqlite3.Connection, path: Path, chat: str, m: ChatMessage, before: Mapping[int, str] | None
) -> bool:
    """Whether a message of a chat is not in the file at ``path`` yet.

    ``before`` are texts as the caller knows them to be in the file, by id; None where it writes
    over any. Where a reply has another one there, with which ``m`` does not begin, that is kept
    as a branch.

    Raises:
        ChatRefusedError: another message has its id.
    """
    query = "SELECT chat, parent, role, created, text FROM messages WHERE id = ?"
    row = db.execute(query, (m.id,)).fetchone()
    if row is None:
        return True
    *place, text = row
    if place != [chat, m.parent, m.role, m.created]:
        raise ChatRefusedError(
            f"another message in {path} has the same id; export the chat to keep it"
        )
    if before is None:
        return False
    known = rows.clean(before.get(m.id, ""))
    if text != known and not rows.clean(m.text).startswith(text):
        db.execute(_COPY, (new_message_id(m.parent), m.id))
    return False


__all__ = ["is_new"]
