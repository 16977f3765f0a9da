"""A chat of one branch as the line interface holds it, saved if there is a saver."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from localspec.chats import calls
from localspec.chats.calls import Said, request_messages
from localspec.chats.record import ChatRecord, reply_details
from localspec.chats.saver import Saver
from localspec.chats.transfer import branch
from localspec.chats.values import Chat, ChatMessage, new_message_id, started
from localspec.core.events import Message, Reply


class Journal:
    """The messages of one branch, for the model and for the disk."""

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
        self._asked: ChatMessage | None = None
        """A question that is saved and has no reply yet."""
        info = started() if resumed is None else resumed.info
        info = dataclasses.replace(
            info,
            system=info.system if system is None else system,
            model=model or info.model,
            draft=draft,
        )
        if saver is not None and resumed is not None:
            saver.know(resumed)
        self._record = ChatRecord(saver, info, stored=bool(self._messages))
        self.drafted_by: str | None = None
        """Name of the draft model that helps with the replies, saved with each."""

    @property
    def saves(self) -> bool:
        """Whether the chat is saved."""
        return self._saver is not None

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._record.info.system

    @system.setter
    def system(self, text: str | None) -> None:
        self._record.set_system(text)

    def use_model(self, model: str) -> None:
        """Another model answers from now on."""
        self._record.set_models(model, None)

    @property
    def so_far(self) -> tuple[str, int] | None:
        """Title and number of messages of the chat that is continued; None for a new chat."""
        return (self._record.info.title, len(self._messages)) if self._messages else None

    def renew(self) -> None:
        """Begin another chat with the same system prompt; the earlier one stays on disk."""
        self._messages, self._asked = [], None
        info = self._record.info
        if self._saver is not None:
            self._saver.leave(info.id)
        fresh = started(info.system, info.model, info.draft)
        self._record = ChatRecord(self._saver, fresh, stored=False)

    def messages(self, question: str | None) -> tuple[Message, ...]:
        """The messages of a request: those so far, and ``question`` at the end; None where the
        model reads the results of its calls.
        """
        said = [Said(m.role, m.text, m.ended, *calls.saved(m.details)) for m in self._messages]
        asked = [] if question is None else [Said("user", question, None, (), None)]
        return request_messages(self.system, [*said, *asked])

    def ask(self, question: str | None) -> None:
        """Save a question before it is answered; one that failed and is asked again is the same.
        None where the model reads the results of its calls.
        """
        if question is None:
            return
        if self._asked is None or self._asked.text != question:
            self._asked = self._next("user", question)
        self._record.ask(self._asked)

    def leave_out(self) -> None:
        """The question asked last is not answered: what was shown before is continued."""
        self._record.show_branch(self._messages[-1].id if self._messages else None)

    def begin(self, question: str | None) -> None:
        """Add a question, the one of `ask`, and its empty reply; None where the reply follows
        results of calls.
        """
        asked, self._asked = (None if question is None else self._asked), None
        if asked is None and question is not None:
            asked = self._next("user", question)
        if asked is not None:
            self._messages.append(asked)
        self._messages.append(self._next("assistant", ""))
        self._record.begin_reply(asked, lambda: self._messages[-1])

    def grow(self, text: str) -> None:
        """Append text to the reply."""
        text = self._messages[-1].text + text
        self._messages[-1] = dataclasses.replace(self._messages[-1], text=text)

    def end(self, reply: Reply) -> None:
        """Replace what was streamed with the finished reply."""
        details = reply_details(self._record.info.model, reply.stats, reply.seed, self.drafted_by)
        self._messages[-1] = dataclasses.replace(
            self._messages[-1], text=reply.text, end=reply.finish_reason, details=details
        )
        self._record.end_reply(self._messages[-1])

    def called(self, found: Sequence[calls.SavedCall], at: int | None) -> None:
        """Add the calls of the last reply, with their results."""
        last = self._messages[-1]
        details = {**(last.details or {}), **calls.details(found, at)}
        self._messages[-1] = dataclasses.replace(last, details=details)
        self._record.end_reply(self._messages[-1])

    def fail(self) -> None:
        """Keep what was streamed of a reply that broke off."""
        self._messages[-1] = dataclasses.replace(self._messages[-1], end="failed")
        self._record.end_reply(self._messages[-1])

    def _next(self, role: Any, text: str) -> ChatMessage:
        parent = self._messages[-1].id if self._messages else None
        details = reply_details(self._record.info.model) if role == "assistant" else None
        return ChatMessage(new_message_id(parent), parent, role, text, time.time(), details=details)
