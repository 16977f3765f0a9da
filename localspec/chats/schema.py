"""The file of chats: opening it, its tables, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec.core.errors import ChatRefusedError, ChatsError, ChatsFileError, LocalspecError
from localspec.core.files import paths

APPLICATION_ID = 0x6C737063
"""Marks the file as ours."""
BUSY_SECONDS = 3.0
"""How long to wait for another localspec that writes."""

_CREATE = (
    """CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        named INTEGER NOT NULL,
        system TEXT,
        model TEXT,
        leaf INTEGER,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        deleted REAL
    ) WITHOUT ROWID""",
    "CREATE INDEX chats_updated ON chats (updated)",
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent INTEGER REFERENCES messages (id) ON DELETE CASCADE CHECK (parent < id),
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        created REAL NOT NULL,
        ended TEXT,
        details TEXT
    )""",
    "CREATE INDEX messages_chat ON messages (chat)",
    "CREATE INDEX messages_parent ON messages (parent)",
    """CREATE VIRTUAL TABLE words USING fts5 (
        text, content = 'messages', content_rowid = 'id',
        tokenize = 'unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER words_insert AFTER INSERT ON messages BEGIN
        INSERT INTO words (rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER words_delete AFTER DELETE ON messages BEGIN
        INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
    """CREATE TRIGGER words_update AFTER UPDATE OF text ON messages
    WHEN old.text IS NOT new.text BEGIN
        INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
        INSERT INTO words (rowid, text) VALUES (new.id, new.text);
    END""",
    "CREATE TABLE presets (name TEXT PRIMARY KEY, system TEXT NOT NULL) WITHOUT ROWID",
)
# The presets table is unused (presets are in config.toml); the file format keeps it.
_DRAFTS = ("ALTER TABLE chats ADD COLUMN draft TEXT",)
# In the file itself, so that they hold for every process, also for one that opened it before.
_ERASED = (
    "CREATE TABLE erased (id TEXT PRIMARY KEY) WITHOUT ROWID",
    """CREATE TRIGGER chats_erased AFTER DELETE ON chats BEGIN
        INSERT OR IGNORE INTO erased (id) VALUES (old.id);
    END""",
    """CREATE TRIGGER erased_stay BEFORE INSERT ON chats
    WHEN EXISTS (SELECT 1 FROM erased WHERE id = new.id) BEGIN
        SELECT RAISE(ABORT, 'this chat was erased');
    END""",
)
MIGRATIONS: tuple[Sequence[str], ...] = (_CREATE, _DRAFTS, _ERASED)
"""Statements that lead from format i to i + 1; an empty file is format 0."""


def default_path() -> Path:
    """The file of the chats."""
    return paths.data_dir() / "chats.db"


def connect(path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, make or update its tables.

    Raises:
        ChatsFileError: damaged, not ours, or written by a newer localspec.
        ChatsError: it cannot be opened, or another process keeps it locked.
    """
    try:
        paths.make(path.parent)
    except LocalspecError as error:
        raise ChatsError(str(error)) from None
    with explained(path):
        _make_private(path)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        with explained(path):
            # A kill of the process loses nothing so; only a power cut may take the last moments.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            # Always: a reply that grows leaves its shorter forms behind, which an erasure years
            # later would not find.
            connection.execute("PRAGMA secure_delete = ON")
            _migrate(connection, path, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """SQLite gives its other files the mode of this one."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise ChatsError(
            f"cannot open the chats in {path}: {error.strerror}; set LOCALSPEC_HOME to a writable "
            "folder"
        ) from None


def _migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]
) -> None:
    connection.execute("BEGIN")  # all of one moment: another process may be making the tables
    try:
        found = _format(connection, path, len(migrations))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if found == len(migrations):
        return
    with transaction(connection):
        # Another process may have been faster.
        for number in range(_format(connection, path, len(migrations)), len(migrations)):
            for statement in migrations[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _format(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """The file's format, if it is one of ours.

    Raises:
        ChatsFileError: it is not.
    """
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or found or tables):
        raise ChatsFileError(f"{path} is another program's database; move it away")
    if found > known:
        raise ChatsFileError(
            f"{path} was written by a newer localspec (format {found}, this one knows {known}); "
            "update localspec"
        )
    return int(found)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; takes the write lock at once, so that waiting for it is possible."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as ours.

    Raises:
        ChatsFileError, ChatsError
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(path, error) from None
    except UnicodeDecodeError:  # in a message about what is wrong with the file
        raise damaged(path, "it holds what is not UTF-8") from None


_MEANINGS = {
    sqlite3.SQLITE_BUSY: "the chats in {path} are locked by another program; end it, or try again",
    sqlite3.SQLITE_LOCKED: "the chats in {path} are in use; try again",
    sqlite3.SQLITE_FULL: "the disk that holds {path} is full; free some space",
    sqlite3.SQLITE_READONLY: "{path} may not be written; change its owner or its mode",
    sqlite3.SQLITE_PERM: "{path} may not be written; change its owner or its mode",
    sqlite3.SQLITE_CANTOPEN: "cannot open {path}; set LOCALSPEC_HOME to a writable folder",
    sqlite3.SQLITE_IOERR: "cannot read or write {path}: {error}; look at the disk",
}


_OF_ONE_CHAT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Errors of what is written, not of the file."""


def _meaning(path: Path, error: sqlite3.Error) -> ChatsError:
    if isinstance(error, _OF_ONE_CHAT):
        return ChatRefusedError(f"{path} does not take it ({error}); export the chat to keep it")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, str(error))
    if "fts5" in str(error) and "no such module" in str(error):
        return ChatsError(
            "this Python's SQLite has no full-text search (FTS5), which chats need; use another "
            "Python"
        )
    text = _MEANINGS.get(code, "cannot use the chats in {path}: {error}")
    return ChatsError(text.format(path=path, error=error))


def damaged(path: Path, why: str) -> ChatsFileError:
    """The error for a file that SQLite cannot read."""
    return ChatsFileError(
        f"the chats in {path} are damaged ({why}); move the file away to start a new one"
    )
