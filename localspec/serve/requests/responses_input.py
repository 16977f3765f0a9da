"""Items of the input of a request in the shape of OpenAI's responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.events import Message
from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.chat_messages import Called, Result, UserContent, as_one, said_by
from localspec.serve.requests.generation import CallId


class InputMessage(Fields, tag_field="type", tag="message"):
    """A message; its ``type`` may be left out."""

    also: ClassVar[dict[str, Any]] = {
        "properties": {"type": {"enum": ["message", None]}},
        "required": ["role", "content"],
    }

    role: Literal["user", "assistant", "system", "developer"]
    content: UserContent

    def __post_init__(self) -> None:
        if self.role != "user" and self.message.pictures:
            raise FieldError("content", "must be text: only users show pictures")

    @property
    def message(self) -> Message:
        """The message."""
        return said_by(self.role, self.content)


class InputCall(Called, tag_field="type", tag="function_call"):
    """An earlier call of a tool."""

    call_id: CallId | None = None

    @property
    def message(self) -> Message:
        """A message that has only this call."""
        return Message("assistant", "", calls=(self.call(self.call_id),))


class InputOutput(Fields, tag_field="type", tag="function_call_output"):
    """The result of a call."""

    output: Result
    call_id: CallId | None = None

    @property
    def message(self) -> Message:
        """The message."""
        return dataclasses.replace(said_by("tool", self.output), call_id=self.call_id or "")


class Thought(Fields):
    """A part of the thinking."""

    text: str | None = None


class InputReasoning(Fields, tag_field="type", tag="reasoning"):
    """Earlier thinking."""

    content: list[Thought] | None = None
    summary: list[Thought] | None = None

    @property
    def message(self) -> Message:
        """A message that has only this thinking."""
        parts = (*(self.content or ()), *(self.summary or ()))
        return Message("assistant", "", "\n".join(part.text or "" for part in parts))


InputItem = Annotated[
    InputMessage | InputCall | InputOutput | InputReasoning,
    Meta(extra={REFUSAL: "is not an item that this server reads"}),
]


def turns(messages: Iterable[Message]) -> Iterator[Message]:
    """The turns of the conversation; one of the assistant may be several items: thinking, a
    message and calls.
    """
    turn: list[Message] = []
    said = False
    for one in messages:
        joins = turn and turn[-1].role == one.role == "assistant" and not (said and one.content)
        if turn and not joins:
            yield as_one(turn, "")
            turn, said = [], False
        turn.append(one)
        said = said or bool(one.content)
    if turn:
        yield as_one(turn, "")
