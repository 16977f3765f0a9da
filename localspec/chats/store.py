"""Reading and writing chats.

One store belongs to one thread; several processes may have one each.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localspec.chats import schema, words
from localspec.chats.saved_states import erase_states
from localspec.chats.schema import explained, transaction
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Hit, Listed
from localspec.errors import ChatsError

log = logging.getLogger("localspec.chats")

PURGE_DAYS = 30
"""How long a removed chat can be restored."""

_INFO = "id, title, named, system, model, leaf, created, updated, deleted, draft"
_MESSAGE = "id, parent, role, text, created, ended, details"


class ChatStore:
    """The file of chats."""

    def __init__(self, path: Path | None = None) -> None:
        """Open it, and purge what was removed long ago.

        Raises:
            ChatsFileError: damaged, not ours, or written by a newer localspec.
            ChatsError: it cannot be opened, or another process keeps it locked.
        """
        self.path = path or schema.default_path()
        self._db = schema.connect(self.path)
        try:
            self.purge()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """May be called twice."""
        self._db.close()

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    # -- writing -------------------------------------------------------------------------------

    def put(self, infos: Iterable[ChatInfo], messages: Iterable[tuple[str, ChatMessage]]) -> None:
        """Insert or replace, all or nothing: chats, and messages as (chat id, message), parents
        first. Whether a chat is removed is not touched.

        Raises:
            ChatsError: nothing was written.
        """
        with explained(self.path), transaction(self._db):
            self._db.executemany(
                """INSERT INTO chats
                    (id, title, named, system, model, leaf, created, updated, draft)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (id) DO UPDATE SET
                    title = iif(named AND NOT excluded.named, title, excluded.title),
                    named = named OR excluded.named,
                    system = excluded.system, model = excluded.model, leaf = excluded.leaf,
                    updated = max(updated, excluded.updated), draft = excluded.draft""",
                [
                    (
                        i.id,
                        _clean(i.title),
                        i.named,
                        i.system and _clean(i.system),
                        i.model and _clean(i.model),
                        i.leaf,
                        i.created,
                        i.updated,
                        i.draft and _clean(i.draft),
                    )
                    for i in infos
                ],
            )
            self._db.executemany(
                """INSERT INTO messages (chat, id, parent, role, text, created, ended, details)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (id) DO UPDATE SET text = excluded.text, ended = excluded.ended,
                    details = excluded.details""",
                [
                    (
                        chat,
                        m.id,
                        m.parent,
                        m.role,
                        _clean(m.text),
                        m.created,
                        m.end,
                        None if m.details is None else json.dumps(m.details),
                    )
                    for chat, m in messages
                ],
            )

    def put_chat(self, chat: Chat) -> None:
        """Insert or replace a whole chat.

        Raises:
            ChatsError: nothing was written.
        """
        self.put_chats([chat])

    def put_chats(self, chats: Iterable[Chat]) -> None:
        """Insert or replace whole chats, all or none.

        Raises:
            ChatsError: nothing was written.
        """
        chats = list(chats)
        messages = [(chat.info.id, m) for chat in chats for m in chat.messages]
        self.put([chat.info for chat in chats], messages)

    def rename(self, id: str, title: str) -> None:  # noqa: A002 - an id is what it is
        """Give a chat a title that stays."""
        self._write("UPDATE chats SET title = ?, named = 1 WHERE id = ?", (_clean(title), id))

    def remove(self, id: str) -> None:  # noqa: A002 - as above
        """Take a chat off the list; `restore` brings it back for `PURGE_DAYS` days."""
        self._write("UPDATE chats SET deleted = ? WHERE id = ?", (time.time(), id))

    def restore(self, id: str) -> None:  # noqa: A002 - as above
        """Undo `remove`."""
        self._write("UPDATE chats SET deleted = NULL WHERE id = ?", (id,))

    def erase(self, id: str) -> None:  # noqa: A002 - as above
        """Remove for good: SQLite overwrites the place of messages, and of their words in the
        index. All saved KV states go too.

        Raises:
            ChatsError: nothing was erased, or the chat was and a saved state cannot be.
        """
        self._erase([id])
        erase_states()

    def _erase(self, ids: Sequence[str]) -> None:
        """Erase chats, all or none, and what the index and the log of writes still hold of them.

        The index only notes that words are gone until its parts are merged. The log is emptied as
        soon as no other process reads; each one that closes the file tries again.
        """
        with explained(self.path):
            with transaction(self._db):
                self._db.executemany("DELETE FROM chats WHERE id = ?", [(id,) for id in ids])  # noqa: A001 - as above
                self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def purge(self, days: float = PURGE_DAYS) -> None:
        """Erase what was removed longer ago, and then all saved KV states too."""
        before = time.time() - days * 86400
        with explained(self.path):
            found = self._db.execute("SELECT id FROM chats WHERE deleted < ?", (before,)).fetchall()
        if found:
            self._erase([id for (id,) in found])  # noqa: A001 - as above
            try:
                erase_states()
            except ChatsError as error:  # the chats themselves can be opened
                log.warning("%s", error)

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        with explained(self.path), transaction(self._db):
            self._db.execute(statement, values)

    # -- reading -------------------------------------------------------------------------------

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._db.execute(query, values).fetchall()

    def listed(self, *, removed: bool = False, limit: int = -1) -> list[Listed]:
        """Chats, the one used last first; or those removed."""
        rows = self._rows(
            f"""SELECT {_INFO}, (SELECT count(*) FROM messages WHERE chat = chats.id) FROM chats
            WHERE (deleted IS NOT NULL) = ? ORDER BY updated DESC, id LIMIT ?""",  # noqa: S608
            (removed, limit),
        )
        return [Listed(_info(row[:-1]), row[-1]) for row in rows]

    def last(self) -> ChatInfo:
        """The chat used last.

        Raises:
            ChatsError: there is none.
        """
        for listed in self.listed(limit=1):
            return listed.info
        raise ChatsError("there is no chat yet")

    def find(self, start: str, *, removed: bool = False) -> ChatInfo:
        """The chat whose id begins so.

        Raises:
            ChatsError: none does, or several.
        """
        rows = self._rows(
            f"""SELECT {_INFO} FROM chats WHERE substr(id, 1, length(?)) = ?
            AND (deleted IS NOT NULL) = ?""",  # noqa: S608 - names of columns
            (start.lower(), start.lower(), removed),
        )
        found = [_info(row) for row in rows]
        if len(found) == 1 and start:
            return found[0]
        if not found or not start:
            kind = "removed chat" if removed else "chat"
            which = " --removed" if removed else ""
            raise ChatsError(f"no {kind} {start!r}; `localspec chats list{which}` shows them")
        ids = ", ".join(info.id for info in found[:5])
        raise ChatsError(f"several chats begin with {start!r}: {ids}; give more of the id")

    def load(self, id: str) -> Chat:  # noqa: A002 - as above
        """A chat with all its branches.

        Raises:
            ChatsError: there is none with that id.
        """
        rows = self._rows(f"SELECT {_INFO} FROM chats WHERE id = ?", (id,))  # noqa: S608 - as above
        if not rows:
            raise ChatsError(f"no chat {id!r}; `localspec chats list` shows them")
        messages = self._rows(
            f"SELECT {_MESSAGE} FROM messages WHERE chat = ? ORDER BY id",  # noqa: S608 - as above
            (id,),
        )
        return Chat(_info(rows[0]), tuple(_message(row) for row in messages))

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """Messages with all words of ``query``, the best first; the last word may be a beginning.

        Where no message has these words, those that contain ``query`` anywhere, the newest first:
        this finds parts of words, and scripts without spaces between words.
        """
        query = query.replace("\0", " ")
        names = ", ".join(f"chats.{name}" for name in _INFO.split(", "))
        select = f"""SELECT {names}, messages.id, messages.role, messages.text FROM messages
            JOIN chats ON chats.id = messages.chat"""  # noqa: S608 - as above
        rows: list[tuple[Any, ...]] = []
        if matching := words.match(query):
            rows = self._rows(
                f"""{select} JOIN words ON words.rowid = messages.id
                WHERE words MATCH ? AND chats.deleted IS NULL ORDER BY rank LIMIT ?""",
                (matching, limit),
            )
        if not rows and query.strip():
            rows = self._rows(
                f"""{select} WHERE messages.text LIKE ? ESCAPE '\\' AND chats.deleted IS NULL
                ORDER BY messages.id DESC LIMIT ?""",
                (words.like(query), limit),
            )
        return [
            Hit(_info(row[:-3]), row[-3], row[-2], words.excerpt(row[-1], query)) for row in rows
        ]

    def check(self) -> None:
        """Read the whole file.

        Raises:
            ChatsFileError: it is damaged.
        """
        for (line,) in self._rows("PRAGMA quick_check(1)"):
            if line != "ok":
                raise schema.damaged(self.path, line)


def _info(row: tuple[Any, ...]) -> ChatInfo:
    values = list(row)
    values[2] = bool(values[2])
    return ChatInfo(*values)


def _message(row: tuple[Any, ...]) -> ChatMessage:
    id, parent, role, text, created, end, details = row  # noqa: A001 - as above
    try:
        found = None if details is None else json.loads(details)
    except (ValueError, TypeError, RecursionError):
        found = None  # figures of a damaged file; the text is what counts
    return ChatMessage(id, parent, role, text, created, end, found)


def _clean(text: str) -> str:
    """Unpaired surrogates, which half a character may leave behind, cannot be stored."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text
