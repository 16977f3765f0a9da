"""What a saver holds of each chat, and writing it: all at once, and one by one where the file does
not take one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localspec.chats import pictures
from localspec.chats.row_ids import RowIds
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, Written
from localspec.core.errors import ChatRefusedError, ChatsError

ERASED = "it was erased elsewhere"

log = logging.getLogger("localspec.chats")

RETRY = 2.0
"""Seconds until a chat that was not taken is tried again."""


@dataclass(slots=True)
class Kept:
    """One chat of a saver."""

    info: ChatInfo
    info_waits: bool = False
    """Whether its info has changed since it was saved."""
    waiting: dict[int, ChatMessage] = field(default_factory=dict)
    """Messages to be saved, by id."""
    saved: dict[int, ChatMessage] = field(default_factory=dict)
    """Messages on disk; saved again where the file is replaced by another one."""
    given: frozenset[str] = frozenset()
    """What of the info the user has given and is not saved, see `rows.GIVE`."""
    why: str | None = None
    """Why what waits cannot be saved."""
    erased: bool = False
    """Erased elsewhere: nothing of it is written any more."""
    retry_at: float = 0.0
    """When to try again what the file did not take."""
    removed: bool = False
    """Whether it was taken off the list elsewhere."""
    left: bool = False
    """Whether it is not open here any more: once nothing of it waits, it is forgotten."""

    @property
    def waits(self) -> bool:
        """Whether there is something to be saved."""
        return not self.erased and (self.info_waits or bool(self.waiting))

    @property
    def unsaved(self) -> str | None:
        """A line about messages that are not saved; None where all are."""
        if self.why is None or not self.waiting:
            return None
        count = len(self.waiting)
        messages = "1 message" if count == 1 else f"{count} messages"
        return f'{messages} of "{self.info.title}" not saved: {self.why}'

    def take(self) -> Part:
        """What is to be saved now; it does not wait any more."""
        part = Part(self, self.info, self.waiting, self.given, info_changed=self.info_waits)
        self.info_waits, self.waiting, self.given = False, {}, frozenset()
        return part


@dataclass(frozen=True, slots=True)
class Part:
    """What is saved of a chat at one time."""

    kept: Kept
    info: ChatInfo
    messages: dict[int, ChatMessage] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    info_changed: bool = False

    @property
    def id(self) -> str:
        """The chat's id."""
        return self.info.id

    def is_not_saved(self) -> None:
        """It waits again; what came in between is newer."""
        self.kept.info_waits |= self.info_changed
        self.kept.waiting = self.messages | self.kept.waiting
        self.kept.given |= self.given


class ChatWriter:
    """Writes parts of chats; belongs to one thread, but for the parts, which ``lock`` guards."""

    def __init__(
        self, path: Path | None, say: Callable[[str, str], None], lock: threading.Condition
    ) -> None:
        """``say`` takes the id of a chat and a line about it."""
        self._path, self._say, self._lock = path, say, lock
        self._store: ChatStore | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self.rows = RowIds()
        """The rows of this window's messages, where other windows have changed theirs."""
        self.again = False
        """Whether the file may be another one than before, so that it may lack what was saved."""

    def fail(self) -> None:
        """Nothing could be written: open the file anew the next time."""
        self.again = True
        self.close()

    def store(self) -> ChatStore:
        """The open file, opened again where another one has its name.

        Raises:
            ChatsError: it cannot be opened.
        """
        if self._store is not None and self._file != _identity(self._store.path):
            # It was moved away or replaced: what is written to it would be lost.
            self.close()
            self.again = True
        if self._store is None:
            self._store = ChatStore(self._path)
            self._file = _identity(self._store.path)
        return self._store

    def close(self) -> None:
        """Close the file."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def write(self, store: ChatStore, parts: list[Part]) -> None:
        """Save all at once, or one chat after the other where the file does not take one of them.

        Raises:
            ChatsError: the file cannot be written, or a picture that had been erased.
        """
        try:
            self._put(store, parts, known=self.again)
        except ChatRefusedError as error:
            log.warning("%s", error)
        except ChatsError:
            raise
        except Exception as error:  # noqa: BLE001 - what a chat is made of cannot be written
            log.warning("%r", error)
        else:
            return
        for part in parts:
            try:
                self._put(store, [part], known=True)
            except ChatsError as error:
                if not isinstance(error, ChatRefusedError):
                    raise
                self._refused(part, str(error))
            except Exception as error:  # noqa: BLE001 - as above
                self._refused(part, f"{type(error).__name__}: {error}")

    def _put(self, store: ChatStore, parts: list[Part], *, known: bool) -> None:
        # A parent's id is smaller than its child's.
        messages = sorted(
            ((part.id, self.rows.saved(m)) for part in parts for m in part.messages.values()),
            key=lambda item: item[1].id,
        )
        infos = [self.rows.info(p.info) for p in parts if p.info_changed or p.messages]
        saved = [dict(self.rows.by_row(part.kept.saved)) for part in parts]
        earlier = []
        if known:
            earlier = [
                Chat(self.rows.info(part.info), tuple(before[row] for row in sorted(before)))
                for part, before in zip(parts, saved, strict=True)
            ]
        given = {part.id: part.given for part in parts}
        back = frozenset(part.id for part in parts if part.kept.removed)
        written = store.put(infos, messages, earlier, given, ChainMap(*saved), back)
        for row, new in written.moved.items():
            self.rows.move(row, new)
        for part in parts:
            self._saved(part, written)
        # Last: where this fails all waits again, which changes nothing in rows that have it.
        gone = written.erased
        pictures.saved(m.text for p in parts if p.id not in gone for m in p.messages.values())

    def _saved(self, part: Part, written: Written) -> None:
        kept = part.kept
        if part.id in written.erased:
            with self._lock:
                part.is_not_saved()
            kept.erased, kept.saved = True, {}
            self._tell_why(kept, ERASED)
            return
        kept.saved |= part.messages
        self._tell_why(kept, None)
        removed = part.id in written.removed
        if removed and not kept.removed:
            self._say(
                kept.info.id,
                "this chat was removed from the list elsewhere; a new message in it brings it back",
            )
        elif part.id in written.restored:
            self._say(
                kept.info.id,
                "this chat was removed from the list elsewhere; it is on it again, "
                "since you write in it",
            )
        kept.removed = removed

    def _refused(self, part: Part, why: str) -> None:
        with self._lock:
            part.is_not_saved()
        part.kept.retry_at = time.monotonic() + RETRY
        self._tell_why(part.kept, why)

    def _tell_why(self, kept: Kept, why: str | None) -> None:
        before, kept.why = kept.why, why
        if why is not None and why != before:
            self._say(kept.info.id, f"this chat is not being saved: {why}")
        elif why is None and before is not None:
            self._say(kept.info.id, "the chat is saved again")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
