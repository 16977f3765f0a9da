"""Erases chats for good: their messages and words, their pictures, and saved states of them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from localspec.chats import pictures
from localspec.chats.schema import explained, transaction
from localspec.core.errors import ChatsError
from localspec.core.files import paths


def erase_chats(db: sqlite3.Connection, path: Path, ids: Sequence[str]) -> None:
    """Erase chats of the file at ``path``, all or none, and what the index and the log of writes
    still hold of them.

    The index only notes that words are gone until its parts are merged. The log is emptied as
    soon as no other process reads; each one that closes the file tries again.

    Raises:
        ChatsError: nothing was erased, or all was but a picture.
    """
    with explained(path):
        with transaction(db):
            erased = _pictures([text for one in ids for text in _texts(db, one)])
            db.executemany("DELETE FROM chats WHERE id = ?", [(one,) for one in ids])
            db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with transaction(db):  # nobody saves a message between the look and the end of a file
            rows = db.execute("SELECT text FROM messages WHERE instr(text, '](picture:')")
            pictures.erase(erased, _pictures(text for (text,) in rows))


def _texts(db: sqlite3.Connection, chat: str) -> list[str]:
    rows = db.execute("SELECT text FROM messages WHERE chat = ?", (chat,))
    return [text for (text,) in rows]


def _pictures(texts: Iterable[str]) -> set[str]:
    """Digests of the pictures of texts."""
    return {found.digest for text in texts for found in pictures.references(text)}


def erase_states() -> None:
    """Remove all saved KV states, of every model: they contain the text of their conversations,
    and which of them contain one is not known without their tokenizers. That costs reading time
    and nothing else.

    Raises:
        ChatsError: one cannot be removed.
    """
    folder = paths.states_dir()
    for file in folder.glob("*/*"):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise ChatsError(
                f"{file} may contain text of the erased chat and cannot be removed: "
                f"{error.strerror}; delete the folder {folder}"
            ) from None
    for emptied in folder.glob("*"):
        with contextlib.suppress(OSError):  # an engine has just written into it
            emptied.rmdir()
