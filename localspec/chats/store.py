"""Reading and writing chats.

One store belongs to one thread; several processes may have one each.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Self

from localspec.chats import pictures, rows, schema, words
from localspec.chats.erasing import erase_chats, erase_states
from localspec.chats.placing import Placing
from localspec.chats.schema import explained, transaction
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Hit, Listed, Written
from localspec.core.errors import ChatsError

log = logging.getLogger("localspec.chats")

PURGE_DAYS = 30
"""How long a removed chat can be restored."""


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

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # -- writing -------------------------------------------------------------------------------

    def put(
        self,
        infos: Iterable[ChatInfo],
        messages: Iterable[tuple[str, ChatMessage]],
        known: Iterable[Chat] = (),
        given: Mapping[str, AbstractSet[str]] | None = None,
        before: Mapping[int, ChatMessage] | None = None,
        back: AbstractSet[str] = frozenset(),
    ) -> Written:
        """Insert or replace, all or nothing: chats, and messages as (chat id, message), parents
        first. Of ``known`` only what is missing is inserted: another process may have newer texts.
        ``given`` is what the user has just given of the infos, by id and as `rows.GIVE` names it;
        all else stays that is in the file, but for titles that nobody gave.
        ``before`` are messages as the caller has written or read them last, by id: what another
        process has made of them since then stays, and `Written.moved` names the rows of ours.

        What was erased stays erased. A removed chat stays removed, unless a message is newer than
        its removal, or is new and its chat one of ``back``: whoever wrote it knew of the removal.

        Raises:
            ChatRefusedError: the file does not take one of the chats; nothing was written.
            ChatsError: nothing was written.
        """
        infos, messages, known = list(infos), list(messages), list(known)
        ids = {i.id for i in infos} | {chat for chat, _ in messages} | {c.info.id for c in known}
        with explained(self.path), transaction(self._db):
            erased = self._which("SELECT id FROM erased WHERE id = ?", ids)
            self._db.executemany(
                f"{rows.PUT_CHAT} DO NOTHING",
                [rows.of_chat(c.info) for c in known if c.info.id not in erased],
            )
            self._db.executemany(
                f"{rows.PUT_MESSAGE} {rows.NEWER}",
                [
                    rows.of_message(c.info.id, m)
                    for c in known
                    if c.info.id not in erased
                    for m in c.messages
                ],
            )
            # After those known: in a copy made while a reply grew, its row is nobody else's.
            placing = Placing(self._db, self.path, before)
            for chat, m in messages:
                if chat not in erased:
                    placing.add(chat, m)
            moved = placing.moved
            infos = [
                dataclasses.replace(i, leaf=moved[i.leaf]) if i.leaf in moved else i for i in infos
            ]
            self._db.executemany(
                f"{rows.PUT_CHAT} {rows.NEWER_INFO}",
                [rows.of_chat(i) for i in infos if i.id not in erased],
            )
            self._db.executemany(
                rows.PUT_MESSAGE,
                [rows.of_message(chat, m) for chat, m in placing.written],
            )
            for i in infos:
                rows.give(self._db, i, (given or {}).get(i.id, ()))
            removed = self._which("SELECT id FROM chats WHERE id = ? AND deleted NOT NULL", ids)
            self._db.executemany(
                "UPDATE chats SET deleted = NULL WHERE id = ? AND deleted < ?",
                [(chat, m.created) for chat, m in messages if chat in removed],
            )
            self._db.executemany(
                "UPDATE chats SET deleted = NULL WHERE id = ?",
                [(id,) for id in placing.new & removed & back],  # noqa: A001 - as below
            )
            still = self._which("SELECT id FROM chats WHERE id = ? AND deleted NOT NULL", removed)
        return Written(erased, still, removed - still, moved)

    def _which(self, query: str, ids: Iterable[str]) -> frozenset[str]:
        """The ids for which ``query`` has a row."""
        return frozenset(id for id in ids if self._db.execute(query, (id,)).fetchone())  # noqa: A001 - an id is what it is

    def put_chats(self, chats: Iterable[Chat]) -> None:
        """Insert or replace whole chats, all or none of those that were not erased.

        Raises:
            ChatsError: nothing was written, one was erased for good, or all was written but a
                picture that had been erased.
        """
        chats = list(chats)
        messages = [(chat.info.id, m) for chat in chats for m in chat.messages]
        infos = [chat.info for chat in chats]
        given = {i.id: rows.GIVE.keys() - (() if i.named else {"title"}) for i in infos}
        erased = self.put(infos, messages, given=given).erased
        pictures.saved(m.text for chat, m in messages if chat not in erased)
        if erased:
            raise ChatsError(f"erased for good, and not written again: {', '.join(sorted(erased))}")

    def rename(self, id: str, title: str) -> None:  # noqa: A002 - as above
        """Give a chat a title that stays."""
        self._change(id, "title = ?, named = 1", rows.clean(title))

    def remove(self, id: str) -> None:  # noqa: A002 - as above
        """Take a chat off the list; `restore` brings it back for `PURGE_DAYS` days."""
        self._change(id, "deleted = ?", time.time())

    def restore(self, id: str) -> None:  # noqa: A002 - as above
        """Undo `remove`."""
        self._change(id, "deleted = NULL")

    def erase(self, id: str) -> None:  # noqa: A002 - as above
        """Remove for good: SQLite overwrites the place of messages, and of their words in the
        index. All saved KV states go too.

        Raises:
            ChatsError: nothing was erased, or the chat was, and a picture or a state was not.
        """
        erase_chats(self._db, self.path, [id])
        erase_states()

    def purge(self, days: float = PURGE_DAYS) -> None:
        """Erase what was removed longer ago, and then all saved KV states too."""
        before = time.time() - days * 86400
        with explained(self.path):
            found = self._db.execute("SELECT id FROM chats WHERE deleted < ?", (before,)).fetchall()
        if found:
            erase_chats(self._db, self.path, [id for (id,) in found])  # noqa: A001 - as above
            try:
                erase_states()
            except ChatsError as error:  # the chats themselves can be opened
                log.warning("%s", error)

    def _change(self, id: str, change: str, *values: Any) -> None:  # noqa: A002 - as above
        """Change a chat that is there.

        Raises:
            ChatsError: it is not there, or nothing can be written.
        """
        with explained(self.path), transaction(self._db):
            done = self._db.execute(f"UPDATE chats SET {change} WHERE id = ?", (*values, id))  # noqa: S608 - ours
            if not done.rowcount:
                gone = self._which("SELECT id FROM erased WHERE id = ?", [id])
                why = "was erased for good" if gone else "is not there"
                raise ChatsError(f"chat {id} {why}; `localspec chats list` shows all")

    # -- reading -------------------------------------------------------------------------------

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        stored = tuple(rows.clean(value) if isinstance(value, str) else value for value in values)
        with explained(self.path):
            return self._db.execute(query, stored).fetchall()

    def listed(self, *, removed: bool = False, limit: int = -1) -> list[Listed]:
        """Chats, the one used last first; or those removed."""
        listed = self._rows(
            f"""SELECT {rows.INFO}, (SELECT count(*) FROM messages WHERE chat = chats.id) FROM chats
            WHERE (deleted IS NOT NULL) = ? ORDER BY updated DESC, id LIMIT ?""",  # noqa: S608
            (removed, limit),
        )
        return [Listed(rows.info(row[:-1]), row[-1]) for row in listed]

    def last(self) -> ChatInfo:
        """The chat used last.

        Raises:
            ChatsError: there is none.
        """
        for listed in self.listed(limit=1):
            return listed.info
        raise ChatsError("there is no chat yet")

    def removed_last(self) -> ChatInfo:
        """The chat that was removed last.

        Raises:
            ChatsError: none is removed.
        """
        for row in self._rows(
            f"SELECT {rows.INFO} FROM chats WHERE deleted NOT NULL ORDER BY deleted DESC LIMIT 1"  # noqa: S608 - as above
        ):
            return rows.info(row)
        raise ChatsError("there is no removed chat to restore")

    def find(self, start: str, *, removed: bool | None = False) -> ChatInfo:
        """The chat with this id, or whose id alone begins so: among those on the list, those
        removed, or with None among all.

        Raises:
            ChatsError: none does, or several.
        """
        states = (False, True) if removed is None else (removed, removed)
        starting = self._rows(
            f"""SELECT {rows.INFO} FROM chats WHERE substr(id, 1, length(?)) = ?
            AND (deleted IS NOT NULL) IN (?, ?) ORDER BY updated DESC, id""",  # noqa: S608 - names of columns
            (start.lower(), start.lower(), *states),
        )
        found = [rows.info(row) for row in starting]
        found = [info for info in found if info.id == start.lower()] or found
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
        chats = self._rows(f"SELECT {rows.INFO} FROM chats WHERE id = ?", (id,))  # noqa: S608 - as above
        if not chats:
            raise ChatsError(f"no chat {id!r}; `localspec chats list` shows them")
        messages = self._rows(
            f"SELECT {rows.MESSAGE} FROM messages WHERE chat = ? ORDER BY id",  # noqa: S608 - as above
            (id,),
        )
        return Chat(rows.info(chats[0]), rows.joined(map(rows.message, messages)))

    def search(self, query: str, limit: int = 50) -> list[Hit]:
        """Messages with all words of ``query``, the best first; the last word may be a beginning.

        Where no message has these words, those that contain ``query`` anywhere, the newest first:
        this finds parts of words, and scripts without spaces between words.
        """
        query = query.replace("\0", " ")
        names = ", ".join(f"chats.{name}" for name in rows.INFO.split(", "))
        select = f"""SELECT {names}, messages.id, messages.role, messages.text FROM messages
            JOIN chats ON chats.id = messages.chat"""  # noqa: S608 - as above
        found: list[tuple[Any, ...]] = []
        if matching := words.match(query):
            found = self._rows(
                f"""{select} JOIN words ON words.rowid = messages.id
                WHERE words MATCH ? AND chats.deleted IS NULL ORDER BY rank LIMIT ?""",
                (matching, limit),
            )
        if not found and query.strip():
            found = self._rows(
                f"""{select} WHERE messages.text LIKE ? ESCAPE '\\' AND chats.deleted IS NULL
                ORDER BY messages.id DESC LIMIT ?""",
                (words.like(query), limit),
            )
        return [
            Hit(rows.info(row[:-3]), row[-3], row[-2], words.excerpt(row[-1], query))
            for row in found
        ]

    def check(self) -> None:
        """Read the whole file.

        Raises:
            ChatsFileError: it is damaged.
        """
        for (line,) in self._rows("PRAGMA quick_check(1)"):
            if line != "ok":
                raise schema.damaged(self.path, line)
