"""Saving a chat while it goes on, in a separate thread: the user never waits for the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from localspec.chats import rows
from localspec.chats.chat_writer import ChatWriter, Kept, Part
from localspec.chats.row_ids import RowIds
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage
from localspec.core.errors import ChatsError

log = logging.getLogger("localspec.chats")

INTERVAL = 0.4
"""Seconds between two savings of a reply that grows."""
_RETRY = 2.0
"""Seconds to wait after a failure of the file."""

T = TypeVar("T")


class Saver:
    """Saves chats in the background. A chat that cannot be saved stops no other; what fails is told
    once, and tried again.

    Everything may be called from any thread and returns at once, `close` excepted.
    """

    def __init__(
        self,
        path: Path | None = None,
        tell: Callable[[str], None] | None = None,
        interval: float = INTERVAL,
    ) -> None:
        """``tell`` is called, from the saver's thread, with lines for the user."""
        self.tell = tell or (lambda _: None)
        self.tell_of: Callable[[str, str], None] = lambda _, line: self.tell(line)
        """Called likewise, with the id of a chat and a line about it alone."""
        self._interval = interval
        self._ready = threading.Condition()
        self._writer = ChatWriter(path, self._say, self._ready)
        self._chats: dict[str, Kept] = {}
        self._growing: dict[int, Callable[[], tuple[str, ChatMessage]]] = {}
        """Unfinished replies, by the id of their message."""
        self._grown: dict[int, tuple[str, ChatMessage]] = {}
        """Messages as they were last saved, by id."""
        self._calls: list[Callable[[], None]] = []
        self._failing: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="saver", daemon=True)
        self._thread.start()

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved; None if it can."""
        return self._failing

    @property
    def rows(self) -> RowIds:
        """Which rows messages of this window have; for functions that `call` calls."""
        return self._writer.rows

    def why_unsaved(self, chat: str) -> str | None:
        """Why the last messages of a chat are not saved; None if they are."""
        kept = self._chats.get(chat)
        return self._failing or (kept.why if kept is not None else None)

    def know(self, chat: Chat) -> None:
        """A chat was read from the file: should the file be replaced, it is saved again."""
        with self._ready:
            kept = self._chats.setdefault(chat.info.id, Kept(chat.info))
            if not kept.info_waits:
                kept.info = chat.info
            kept.saved |= {m.id: m for m in chat.messages}
            kept.removed = kept.left = False

    def know_messages(self, chat: str, messages: Iterable[ChatMessage]) -> None:
        """Messages of a chat that is known were read from the file, as `rows` shows them here."""
        with self._ready:
            if kept := self._chats.get(chat):
                kept.saved |= {m.id: m for m in messages}
                kept.removed = False

    def forget(self, chat: str) -> None:
        """A chat was removed here. What the user gave it in that moment is saved, for `restore`."""
        with self._ready:
            if kept := self._chats.get(chat):
                kept.removed, kept.saved = True, {}

    def leave(self, chat: str) -> None:
        """A chat is not open here any more. Its messages are forgotten once they are saved: should
        the file be replaced later, they are not saved again.
        """
        with self._ready:
            if kept := self._chats.get(chat):
                kept.left = True
                self._calls.append(lambda: None)  # after which what was left is forgotten
                self._ready.notify()

    def save(self, info: ChatInfo, *messages: ChatMessage) -> None:
        """Save a chat and messages of it, new or changed ones; parents first."""
        with self._ready:
            kept = self._chats.setdefault(info.id, Kept(info))
            kept.given |= rows.given(info, kept.info)
            kept.info, kept.info_waits = info, True
            kept.waiting |= {m.id: m for m in messages}
            self._ready.notify()

    def follow(self, message: int, growing: Callable[[], tuple[str, ChatMessage]]) -> None:
        """Save what the function returns for that message at each interval, until `unfollow`.

        It is called from the saver's thread. Its message must have been saved before.
        """
        with self._ready:
            self._growing[message] = growing
            self._ready.notify()

    def unfollow(self, message: int) -> None:
        """Save the message no more by itself."""
        with self._ready:
            self._growing.pop(message, None)
            self._grown.pop(message, None)

    def call(self, function: Callable[[ChatStore], T]) -> Future[T]:
        """Call ``function`` with the store, after all pending messages have been saved.

        The future raises ChatsError where the store cannot be used.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(self._writer.store()))
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(error)

        with self._ready:
            if self._closed:
                future.set_exception(ChatsError("the chats are closed"))
                return future
            self._calls.append(run)
            self._ready.notify()
        return future

    def close(self, timeout: float = 10.0) -> tuple[str, ...]:
        """Save what is pending and end; a line for each reason why something is not saved."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return ("the disk does not answer; the last messages may not be saved",)
        if self._failing is not None:
            return (f"the last messages could not be saved: {self._failing}",)
        lines = (kept.unsaved for kept in self._chats.values())
        return tuple(line for line in lines if line is not None)

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        next_save = 0.0
        while True:
            with self._ready:
                while not (self._calls or self._closed or self._wait(next_save) == 0):
                    self._ready.wait(self._wait(next_save))
                calls, self._calls = self._calls, []
                closed = self._closed
            saved = self._flush(all_of_them=closed or bool(calls))
            next_save = time.monotonic() + (self._interval if saved else _RETRY)
            for call in calls:
                call()
            self._forget_left()
            if closed:
                break
        self._writer.close()

    def _forget_left(self) -> None:
        with self._ready:
            for kept in [*self._chats.values()]:
                if kept.left and not (kept.waiting or kept.info_waits):
                    del self._chats[kept.info.id]

    def _wait(self, next_save: float) -> float | None:
        """Seconds until there is something to save; None where nothing is known of."""
        times = [kept.retry_at for kept in self._chats.values() if kept.waits]
        times += [0.0] if self._growing else []
        now = time.monotonic()
        return max(0.0, next_save - now, min(times) - now) if times else None

    def _flush(self, *, all_of_them: bool) -> bool:
        """Save what is pending; whether the file could be written."""
        parts = self._take(all_of_them=all_of_them)
        if not parts:
            return self._failing is None
        try:
            store = self._writer.store()
            if self._writer.again:
                parts += self._others(parts)
            self._writer.write(store, parts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the chats continue and report it
            with self._ready:
                for part in parts:
                    part.is_not_saved()
            self._writer.fail()
            self._report(str(error))
            return False
        self._writer.again = False
        self._report(None)
        return True

    def _take(self, *, all_of_them: bool) -> list[Part]:
        """What is to be saved now, with the replies that have grown."""
        for message, reply in list(self._growing.items()):
            try:
                grown = reply()
            except Exception as error:  # noqa: BLE001 - of this reply; its end is saved in any case
                log.warning("a reply cannot be saved while it grows: %r", error)
                continue
            with self._ready:
                kept = self._chats.get(grown[0])
                waiting = None if kept is None else kept.waiting.get(message)
                ended = waiting is not None and waiting.end is not None
                if kept is None or ended or message not in self._growing:
                    continue
                if grown != self._grown.get(message):
                    kept.waiting[message] = grown[1]
                    self._grown[message] = grown
        now = time.monotonic()
        with self._ready:
            due = [
                k for k in self._chats.values() if k.waits and (all_of_them or k.retry_at <= now)
            ]
            return [kept.take() for kept in due]

    def _others(self, parts: list[Part]) -> list[Part]:
        """All further chats, without anything new."""
        taken = {part.id for part in parts}
        with self._ready:
            chats = [k for k in self._chats.values() if not k.erased and (k.saved or not k.removed)]
        return [Part(k, k.info) for k in chats if k.info.id not in taken]

    def _say(self, chat: str, line: str) -> None:
        try:
            self.tell_of(chat, line)
        except Exception as error:  # noqa: BLE001 - whoever listens is gone; saving goes on
            log.warning("%s: %r", line, error)

    def _report(self, failing: str | None) -> None:
        before, self._failing = self._failing, failing
        line = None
        if failing is not None and before is None:
            line = f"this chat is not being saved: {failing}"
        elif failing is None and before is not None:
            line = "the chat is saved again"
        try:
            if line is not None:
                self.tell(line)
        except Exception as error:  # noqa: BLE001 - as in `_say`
            log.warning("%s: %r", line, error)
