"""Saving a chat while it goes on, in a separate thread: the user never waits for the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from localspec.chats.store import ChatStore
from localspec.chats.values import ChatInfo, ChatMessage
from localspec.errors import ChatsError

INTERVAL = 0.4
"""Seconds between two savings of a reply that grows."""
_RETRY = 2.0
"""Seconds to wait after a failure."""

T = TypeVar("T")


def _silent(line: str) -> None:
    """Used until a listener is set."""


class Saver:
    """Saves chats in the background; a failure is reported once, and the saving is retried.

    Everything may be called from any thread and returns at once, `close` excepted.
    """

    def __init__(
        self,
        path: Path | None = None,
        tell: Callable[[str], None] | None = None,
        interval: float = INTERVAL,
    ) -> None:
        """``tell`` is called, from the saver's thread, with lines for the user."""
        self.tell = tell or _silent
        self._path = path
        self._interval = interval
        self._store: ChatStore | None = None
        self._ready = threading.Condition()
        self._infos: dict[str, ChatInfo] = {}
        self._messages: dict[int, tuple[str, ChatMessage]] = {}
        self._saved_infos: dict[str, ChatInfo] = {}
        self._saved_messages: dict[int, tuple[str, ChatMessage]] = {}
        """Saved already; saved again after a failure, since the file may be another one then."""
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
        """Why the last messages could not be saved; None if they are."""
        return self._failing

    def save(self, info: ChatInfo, *messages: ChatMessage) -> None:
        """Save a chat and messages of it, new or changed ones; parents first."""
        with self._ready:
            self._infos[info.id] = info
            for message in messages:
                self._messages[message.id] = (info.id, message)
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
                future.set_result(function(self._opened()))
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(error)

        with self._ready:
            if self._closed:
                future.set_exception(ChatsError("the chats are closed"))
                return future
            self._calls.append(run)
            self._ready.notify()
        return future

    def close(self, timeout: float = 10.0) -> str | None:
        """Save what is pending and end; why something is not saved, or None."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return "the disk does not answer; the last messages may not be saved"
        return self._failing

    # -- in the thread -------------------------------------------------------------------------

    def _opened(self) -> ChatStore:
        if self._store is None:
            self._store = ChatStore(self._path)
        return self._store

    def _run(self) -> None:
        next_save = 0.0
        while True:
            with self._ready:
                while not (self._calls or self._closed or self._due(next_save)):
                    self._ready.wait(self._sleep(next_save))
                calls, self._calls = self._calls, []
                closed = self._closed
            saved = self._flush()
            next_save = time.monotonic() + (self._interval if saved else _RETRY)
            for call in calls:
                call()
            if closed:
                break
        self._close_store()

    def _waits(self) -> bool:
        return bool(self._infos or self._messages or self._growing)

    def _due(self, next_save: float) -> bool:
        return self._waits() and time.monotonic() >= next_save

    def _sleep(self, next_save: float) -> float | None:
        return max(0.0, next_save - time.monotonic()) if self._waits() else None

    def _flush(self) -> bool:
        """Save all that is pending; whether that worked."""
        with self._ready:
            infos, messages = self._infos, self._messages
            growing = dict(self._growing)
            self._infos, self._messages = {}, {}
        for message, reply in growing.items():
            grown = reply()
            waiting = messages.get(message)
            ended = waiting is not None and waiting[1].end is not None
            if grown != self._grown.get(message) and not ended:
                messages[message] = self._grown[message] = grown
        if not infos and not messages:
            return self._failing is None
        try:
            # A parent's id is smaller than its child's.
            self._opened().put(infos.values(), [messages[key] for key in sorted(messages)])
        except Exception as error:  # noqa: BLE001 - whatever it is, the chat continues and reports it
            with self._ready:  # what came in between is newer
                self._infos = self._saved_infos | infos | self._infos
                self._messages = self._saved_messages | messages | self._messages
            self._close_store()  # the file may be another one the next time
            self._report(str(error))
            return False
        self._saved_infos |= infos
        self._saved_messages |= messages
        self._report(None)
        return True

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _report(self, failing: str | None) -> None:
        before, self._failing = self._failing, failing
        if failing is not None and before is None:
            self.tell(f"this chat is not being saved: {failing}")
        elif failing is None and before is not None:
            self.tell("the chat is saved again")
