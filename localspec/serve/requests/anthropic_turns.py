"""Turns of a conversation in the shape of Anthropic's messages, and the blocks in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from localspec.core.errors import MediaError, UsageError
from localspec.core.events import Message, MessageCall
from localspec.core.picture import UNSEEN, Picture
from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.chat_messages import Arguments, as_one
from localspec.serve.requests.earlier_calls import message_call
from localspec.serve.requests.generation import CallId, Name
from localspec.serve.requests.pictures import joined, picture_at, picture_of, picture_of_result

_NOT_TEXT = Meta(extra={REFUSAL: "must be text: this model reads no images, PDFs or files"})
_UNREAD = Meta(extra={REFUSAL: "must be text or a picture: PDFs and files are not read"})


class TextBlock(Fields, tag_field="type", tag="text"):
    """A text."""

    text: str | None = None

    @property
    def said(self) -> str:
        """The text."""
        return self.text or ""


class TextSource(Fields):
    """The content of a `FileBlock`."""

    type: Annotated[Literal["text"], _NOT_TEXT]
    data: str | None = None


class FileBlock(Fields, tag_field="type", tag="document"):
    """A file that is a text."""

    source: TextSource

    @property
    def said(self) -> str:
        """The text."""
        return self.source.data or ""


class ImageSource(Fields):
    """The bytes of a picture."""

    type: Literal["base64", "url"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        try:
            self.picture()
        except MediaError as error:
            raise FieldError("data" if self.type == "base64" else "url", "", str(error)) from None

    def picture(self) -> Picture:
        """The picture.

        Raises:
            MediaError: it is none, or an address.
        """
        if self.type == "url":
            return picture_at(self.url or "")
        return picture_of(self.data or "", self.media_type)


class ImageBlock(Fields, tag_field="type", tag="image"):
    """A picture."""

    source: ImageSource


class ResultBlock(Fields):
    """A part of a result: text or a picture, see `chat_messages.ResultPart`."""

    type: str | None = None
    text: str | None = None
    source: Any = None

    def part(self) -> str | Picture:
        """The text or the picture; `UNSEEN` for anything else."""
        if self.type == "text":
            return self.text or ""
        source = self.source if isinstance(self.source, dict) else {}
        if self.type == "document" and source.get("type") == "text":
            return str(source.get("data") or "")
        if self.type == "image" and source.get("type") == "base64":
            return picture_of_result(f"data:{source.get('media_type')};base64,{source.get('data')}")
        return UNSEEN


class ToolResultBlock(Fields, tag_field="type", tag="tool_result"):
    """The result of a call."""

    tool_use_id: CallId | None = None
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None

    @property
    def message(self) -> Message:
        """The message."""
        given = self.content or ""
        parts = [given] if isinstance(given, str) else [block.part() for block in given]
        if self.is_error:
            parts = [f"Error: {parts[0]}", *parts[1:]] if isinstance(parts[0], str) else parts
        text, pictures = joined(parts, between="\n")
        return Message("tool", text, call_id=self.tool_use_id or "", pictures=pictures)


class ToolUseBlock(Fields, tag_field="type", tag="tool_use"):
    """An earlier call of a tool."""

    name: Name
    id: CallId | None = None
    input: Arguments = None

    def __post_init__(self) -> None:
        try:
            self.call()
        except UsageError as error:
            raise FieldError("input", "", str(error)) from None

    def call(self) -> MessageCall:
        """The call."""
        return message_call(self.id, self.name, self.input)


class ThinkingBlock(Fields, tag_field="type", tag="thinking"):
    """Earlier thinking."""

    thinking: str | None = None


class RedactedThinkingBlock(Fields, tag_field="type", tag="redacted_thinking"):
    """Earlier thinking that nobody can read."""


SystemText = Annotated[TextBlock | FileBlock, _NOT_TEXT]
_Said = Annotated[TextBlock | FileBlock | ImageBlock | ToolResultBlock, _UNREAD]
_Thought = Annotated[
    TextBlock | FileBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock, _NOT_TEXT
]


class SystemTurn(Fields, tag_field="role", tag="system"):
    """A message of the system between others."""

    content: str | list[SystemText]

    @property
    def messages(self) -> list[Message]:
        """The message."""
        return [Message("system", "\n\n".join(texts_of(self.content)))]


class UserTurn(Fields, tag_field="role", tag="user"):
    """A message of the user: texts, pictures, and results of calls."""

    content: str | list[_Said]

    @property
    def messages(self) -> list[Message]:
        """The messages: one for each result, and for the texts between them."""
        if isinstance(self.content, str):
            return [Message("user", self.content)]
        found: list[Message] = []
        parts: list[str | Picture] = []
        for block in self.content:
            if isinstance(block, ImageBlock):
                parts.append(block.source.picture())
            elif not isinstance(block, ToolResultBlock):
                parts.append(block.said)
            else:
                if parts:
                    found.append(_user(parts))
                    parts = []
                found.append(block.message)
        if parts or not found:
            found.append(_user(parts))
        return found


def _user(parts: Sequence[str | Picture]) -> Message:
    text, pictures = joined(parts, between="\n")
    return Message("user", text, pictures=pictures)


class AssistantTurn(Fields, tag_field="role", tag="assistant"):
    """A message of the model: thinking, texts and calls."""

    content: str | list[_Thought]

    @property
    def messages(self) -> list[Message]:
        """The message."""
        if isinstance(self.content, str):
            return [Message("assistant", self.content)]
        texts = [b.said for b in self.content if isinstance(b, TextBlock | FileBlock)]
        thoughts = [b.thinking or "" for b in self.content if isinstance(b, ThinkingBlock)]
        calls = tuple(block.call() for block in self.content if isinstance(block, ToolUseBlock))
        return [Message("assistant", "\n".join(texts), "\n".join(thoughts), calls)]


_EMPTY = "must be an array of at least one message"
Turns = Annotated[
    list[SystemTurn | UserTurn | AssistantTurn], Meta(min_length=1, extra={REFUSAL: _EMPTY})
]


def texts_of(content: str | Sequence[TextBlock | FileBlock]) -> list[str]:
    """The texts of a content, which may be one without blocks."""
    return [content] if isinstance(content, str) else [block.said for block in content]


def turns(messages: Iterable[Message]) -> list[Message]:
    """The messages; turns of one side that follow each other are one turn."""
    several = itertools.groupby(enumerate(messages), _side)
    return [as_one([one for _, one in turn], "\n") for _, turn in several]


def _side(numbered: tuple[int, Message]) -> str | int:
    """What messages of one turn have in common; others have nothing in common."""
    number, one = numbered
    return one.role if one.role in {"user", "assistant"} else number
