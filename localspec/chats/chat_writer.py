"""Writing the chats of a saver: all at once, and one by one where the file does not take one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from localspec.chats.kept import ERASED, Kept, Part
from localspec.chats.store import ChatStore
from localspec.chats.values import Written
from localspec.core.errors import ChatRefusedError, ChatsError

log = logging.getLogger("localspec.chats")

RETRY = 2.0
"""Seconds until a chat that was not taken is tried again."""


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
            ChatsError: the file cannot be written.
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
            ((part.id, m) for part in parts for m in part.messages.values()),
            key=lambda item: item[1].id,
        )
        infos = [part.info for part in parts if part.info_changed or part.messages]
        earlier = [part.known for part in parts] if known else []
        given = {part.id: part.given for part in parts}
        before = {key: m.text for part in parts for key, m in part.before.items()}
        back = frozenset(part.id for part in parts if part.kept.removed)
        written = store.put(infos, messages, earlier, given, before, back)
        for part in parts:
            self._saved(part, written)

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
