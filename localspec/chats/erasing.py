"""Erases chats for good: their messages and words, their pictures, and saved states of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from localspec.chats import pictures
from localspec.chats.schema import explained, transaction
from localspec.errors import ChatsError
from localspec.files import paths


def erase_chats(db: sqlite3.Connection, path: Path, ids: Sequence[str]) -> None:
    """Erase chats of the file at ``path``, all or none, and what the index and the log of writes
    still hold of them.

    The index only notes that words are gone until its parts are merged. The log is emptied as
    soon as no other process reads; each one that closes the file tries again.

    Raises:
        ChatsError: nothing was erased.
    """
    with explained(path):
        with transaction(db):
            shown = _pictures(db, ids)
            db.executemany("DELETE FROM chats WHERE id = ?", [(one,) for one in ids])
            db.execute("INSERT INTO words (words) VALUES ('optimize')")
            unused = [digest for digest in shown if not _shows(db, digest)]
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pictures.erase(unused)


def _pictures(db: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Digests of the pictures of chats."""
    texts = [
        text
        for one in ids
        for (text,) in db.execute("SELECT text FROM messages WHERE chat = ?", (one,))
    ]
    return {found.digest for text in texts for found in pictures.references(text)}


def _shows(db: sqlite3.Connection, digest: str) -> bool:
    """Whether any message shows a picture."""
    query = "SELECT 1 FROM messages WHERE instr(text, ?) LIMIT 1"
    return db.execute(query, (f"picture:{digest}",)).fetchone() is not None


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
