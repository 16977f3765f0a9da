"""A process that saves chats as a window does, or changes them as a command does: told by lines of
JSON on stdin, a line in answer to each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

from localspec.chats import chat_writer, schema, transfer
from localspec.chats import saver as saver_module
from localspec.chats.chat_writer import ChatWriter, Part
from localspec.chats.placing import Placing
from localspec.chats.record import ChatRecord
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import ChatMessage, new_message_id, started
from localspec.core.errors import ChatsError

DEFECT = "LOCALSPEC_SEARCH_DEFECT"
"""Variable with a defect that the search has to find: `forgets` what was erased, saves all chats
`together` or none, `overwrites` what another window has written, or lets a question `hang` under
what another window has made of the reply before it.
"""


class Window:
    """The chats of one window."""

    def __init__(self) -> None:
        self._saver = Saver(interval=0.01)
        self._open: dict[str, tuple[ChatRecord, list[ChatMessage]]] = {}

    def new(self) -> str:
        """Open a chat; its id."""
        record = ChatRecord(self._saver, started(), stored=False)
        self._open[record.info.id] = (record, [])
        return record.info.id

    def resume(self, chat: str) -> bool:
        """Open a saved chat; whether it is there."""
        try:
            found = self._saver.call(lambda store: store.load(chat)).result(30)
        except ChatsError:
            return False
        self._saver.know(found)
        record = ChatRecord(self._saver, found.info, stored=True)
        self._open[chat] = (record, transfer.branch(found))
        return True

    def ask(self, chat: str, question: str, reply: str, *, ends: bool) -> list[str]:
        """Save a question, and a reply that ends or goes on growing; the texts before it."""
        record, messages = self._open[chat]
        before = [m.text for m in messages]
        messages.append(_next(messages, "user", question))
        asked = messages[-1]
        messages.append(_next(messages, "assistant", reply))
        begun = messages[-1]
        record.begin_reply(asked, lambda: begun)
        if ends:
            messages[-1] = dataclasses.replace(begun, end="stop")
            record.end_reply(messages[-1])
        return before

    def go_on(self, chat: str, more: str) -> list[str] | None:
        """Continue the last reply: its text before and now; None where there is none."""
        record, messages = self._open[chat]
        if not messages or messages[-1].role != "assistant":
            return None
        before = messages[-1]
        messages[-1] = dataclasses.replace(before, text=before.text + more, end="stop")
        after = messages[-1]
        record.begin_reply(None, lambda: after)
        record.end_reply(after)
        return [before.text, after.text]

    def sync(self) -> dict[str, Any]:
        """Why chats are not saved, after all was tried; `failing` where none can be."""
        self._saver.call(lambda _: None).result(30)
        whys = {chat: self._saver.why_unsaved(chat) for chat in self._open}
        return {"failing": self._saver.failing, "whys": whys}

    def close(self) -> list[str]:
        """What is told at the end."""
        return list(self._saver.close())


class Shell:
    """Commands about saved chats, each with a store of its own."""

    def make(self) -> None:
        """Make the file."""
        ChatStore().close()

    def erase(self, chat: str) -> None:
        """Remove a chat for good."""
        with ChatStore() as store:
            store.erase(chat)

    def remove(self, chat: str) -> None:
        """Take a chat off the list."""
        with ChatStore() as store:
            store.remove(chat)

    def restore(self, chat: str) -> None:
        """Put a chat back on the list."""
        with ChatStore() as store:
            store.restore(chat)

    def rename(self, chat: str, title: str) -> None:
        """Give a chat a title."""
        with ChatStore() as store:
            store.rename(chat, title)

    def lock(self, seconds: float) -> None:
        """Keep the file locked for longer than a window waits."""
        with contextlib.closing(sqlite3.connect(schema.default_path())) as base:
            base.execute("PRAGMA busy_timeout = 30000")
            base.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            base.rollback()


def _next(messages: list[ChatMessage], role: Any, text: str) -> ChatMessage:
    parent = messages[-1].id if messages else None
    return ChatMessage(new_message_id(parent), parent, role, text, time.time())


def _together(self: ChatWriter, store: ChatStore, parts: list[Part]) -> None:
    """`ChatWriter.write` as it was once: one chat that cannot be saved stops all."""
    if store.put([part.info for part in parts], []).erased:
        raise ChatsError("FOREIGN KEY constraint failed")
    self._put(store, parts, known=self.again)


def main() -> None:
    """Obey until the end of stdin."""
    schema.BUSY_SECONDS = 0.1 if sys.argv[1] == "window" else 30
    saver_module._RETRY = chat_writer.RETRY = 0.05
    if os.environ.get(DEFECT) == "forgets":
        without = (*schema.MIGRATIONS[:-1], schema.MIGRATIONS[-1][:1])  # no trigger notes an id
        schema.connect = functools.partial(schema.connect, migrations=without)
    if os.environ.get(DEFECT) == "overwrites":
        Placing._is_anothers = lambda *_: False  # type: ignore[method-assign]
    if os.environ.get(DEFECT) == "hang":
        Placing._hold = lambda *_: None  # type: ignore[method-assign]
    if os.environ.get(DEFECT) == "together":
        ChatWriter.write = _together  # type: ignore[method-assign]
    place: Window | Shell = Window() if sys.argv[1] == "window" else Shell()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        obey: Callable[..., Any] = getattr(place, name)
        try:
            answer = {"answer": obey(**arguments)}
        except ChatsError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
