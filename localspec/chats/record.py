"""One chat on disk: its title, model and branch, and its messages as they are written."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from localspec.chats.pictures import named
from localspec.chats.saver import Saver
from localspec.chats.values import DRAFT, MODEL, ChatInfo, ChatMessage, title_of
from localspec.core import codec
from localspec.core.events import Stats


class ChatRecord:
    """Keeps a chat's `ChatInfo` up to date; with a saver, writes it and the messages to disk."""

    def __init__(self, saver: Saver | None, info: ChatInfo, *, stored: bool) -> None:
        """``stored`` is False for a chat without messages: it is not on disk yet."""
        self._saver = saver
        self.info = info
        self._stored = stored

    def rename(self, title: str) -> None:
        """Set a title that later questions do not change."""
        self.info = dataclasses.replace(self.info, title=title, named=True)
        self._save_stored()

    def propose_title(self, title: str) -> None:
        """Set a title that the model wrote; one that the user gave stays."""
        if not self.info.named:
            self.info = dataclasses.replace(self.info, title=title)
            self._save_stored()

    def set_models(self, model: str | None, draft: str | None) -> None:
        """Set the model that answers from now on; saved with the next message."""
        self.info = dataclasses.replace(self.info, model=model, draft=draft)

    def set_system(self, system: str | None) -> None:
        """Set the system prompt; saved with the next message."""
        self.info = dataclasses.replace(self.info, system=system)

    def show_branch(self, leaf: int | None) -> None:
        """Save which message the branch that is shown ends in."""
        self._touch(leaf)
        self._save_stored()

    def begin_reply(self, question: ChatMessage | None, reply: Callable[[], ChatMessage]) -> None:
        """Save a question, and its reply as it grows; the first question gives the title.

        ``reply`` returns the reply so far. It is called in the saver's thread until `end_reply`.
        ``question`` is None where an earlier one is answered again.
        """
        if question is not None:
            self._name_by(question)
        self._stored = True
        begun = reply()
        self._touch(begun.id)
        if self._saver is not None:
            messages = (begun,) if question is None else (question, begun)
            self._saver.save(self.info, *messages)
            self._saver.follow(begun.id, lambda: (self.info.id, reply()))

    def ask(self, question: ChatMessage) -> None:
        """Save a question that is not answered yet."""
        self._name_by(question)
        self._stored = True
        self._touch(question.id)
        if self._saver is not None:
            self._saver.save(self.info, question)

    def _name_by(self, question: ChatMessage) -> None:
        if not (self._stored or self.info.named):
            self.info = dataclasses.replace(self.info, title=title_of(named(question.text)))

    def end_reply(self, reply: ChatMessage) -> None:
        """Save the finished reply."""
        self._touch(self.info.leaf)
        if self._saver is not None:
            self._saver.unfollow(reply.id)
            self._saver.save(self.info, reply)

    def _touch(self, leaf: int | None) -> None:
        self.info = dataclasses.replace(self.info, leaf=leaf, updated=time.time())

    def _save_stored(self) -> None:
        if self._saver is not None and self._stored:
            self._saver.save(self.info)


def reply_details(
    model: str | None,
    stats: Stats | None = None,
    seed: int | None = None,
    draft: str | None = None,
) -> dict[str, Any]:
    """The details of a reply that every writer saves, as JSON values; empty where none is known."""
    details: dict[str, Any] = {} if model is None else {MODEL: model}
    if draft is not None:
        details[DRAFT] = draft
    if stats is not None:
        details |= {"seed": seed, "stats": codec.encode(stats)}
    return details
