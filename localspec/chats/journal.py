"""A chat of one branch, saved while it goes on if there is a saver."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from localspec.chats.saver import Saver
from localspec.chats.transfer import branch
from localspec.chats.values import MODEL, Chat, ChatMessage, new_message_id, started, title_of
from localspec.core import codec
from localspec.core.events import Message, Reply


class Journal:
    """The messages of a chat, for the model and for the disk."""

    def __init__(
        self,
        saver: Saver | None = None,
        *,
        system: str | None = None,
        model: str | None = None,
        draft: str | None = None,
        resumed: Chat | None = None,
    ) -> None:
        """Begin a chat, or continue one; its system prompt stays unless another is given.

        ``model`` and ``draft`` are names that mean the same in every folder.
        """
        self._saver = saver
        self._messages = [] if resumed is None else branch(resumed)
        info = started() if resumed is None else resumed.info
        self._info = dataclasses.replace(
            info,
            system=info.system if system is None else system,
            model=model or info.model,
            draft=draft,
        )

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._info.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._info = dataclasses.replace(self._info, system=text)

    @property
    def so_far(self) -> tuple[str, int] | None:
        """Title and number of messages of a continued chat; None for a new one."""
        return (self._info.title, len(self._messages)) if self._messages else None

    def renew(self) -> None:
        """Begin another chat with the same system prompt; the saved one is not changed."""
        self._messages = []
        self._info = started(self._info.system, self._info.model, self._info.draft)

    def messages(self, question: str) -> list[Message]:
        """The messages for the model, with a new question at the end."""
        system = [Message("system", self._info.system)] if self._info.system else []
        earlier = [Message(m.role, m.text) for m in self._messages if m.text]
        return [*system, *earlier, Message("user", question)]

    def begin(self, question: str) -> None:
        """Add a question and an empty reply."""
        if not self._messages and not self._info.named:
            self._info = dataclasses.replace(self._info, title=title_of(question))
        asked = self._next("user", question)
        self._messages.append(asked)
        self._messages.append(self._next("assistant", ""))
        self._save(*self._messages[-2:])
        if self._saver is not None:
            self._saver.follow(lambda: (self._info.id, self._messages[-1]))

    def grow(self, text: str) -> None:
        """Append to the reply."""
        self._messages[-1] = dataclasses.replace(
            self._messages[-1], text=self._messages[-1].text + text
        )

    def end(self, reply: Reply) -> None:
        """Complete the reply."""
        details = {"seed": reply.seed, "stats": codec.encode(reply.stats), **self._by()}
        self._messages[-1] = dataclasses.replace(
            self._messages[-1], text=reply.text, end=reply.finish_reason, details=details
        )
        if self._saver is not None:
            self._saver.follow(None)
        self._save(self._messages[-1])

    def _next(self, role: Any, text: str) -> ChatMessage:
        parent = self._messages[-1].id if self._messages else None
        details = self._by() if role == "assistant" else None
        return ChatMessage(new_message_id(parent), parent, role, text, time.time(), details=details)

    def _by(self) -> dict[str, Any]:
        """The part of a reply's details that names its model."""
        return {} if self._info.model is None else {MODEL: self._info.model}

    def _save(self, *messages: ChatMessage) -> None:
        self._info = dataclasses.replace(
            self._info, leaf=self._messages[-1].id, updated=time.time()
        )
        if self._saver is not None:
            self._saver.save(self._info, *messages)
