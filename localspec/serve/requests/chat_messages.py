"""The messages of a chat request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import UNSET, Meta, UnsetType

from localspec.core.errors import MediaError, UsageError
from localspec.core.events import Message, MessageCall, Role
from localspec.core.picture import UNSEEN, Picture
from localspec.serve.http.typed import Fields, any_of
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.earlier_calls import message_call
from localspec.serve.requests.generation import LONGEST_NAME, CallId, Name
from localspec.serve.requests.pictures import joined, picture_at, picture_of_result, sound_of

_PART = Meta(extra={REFUSAL: "must be text: this model reads no images, sound or files"})
_USER_PART = Meta(extra={REFUSAL: "must be text, a picture or a sound: files are not read"})
_TEXTS = ("text", "input_text", "output_text", "refusal")
_IMAGES = ("image_url", "input_image")


class _Part(Fields):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None

    def part(self) -> str | Picture:
        """The text."""
        return (self.refusal if self.type == "refusal" else self.text) or ""


class TextPart(_Part):
    """A part of a message."""

    type: Annotated[Literal["text", "input_text", "output_text", "refusal"], _PART]


class ImageUrl(Fields):
    """A picture in a part of a message."""

    url: str
    detail: str | None = None


class InputAudio(Fields):
    """A sound in a part of a message."""

    data: str
    format: str | None = None


class UserPart(_Part):
    """A part of a message of the user: text, a picture, or a sound."""

    type: Annotated[
        Literal[
            "text",
            "input_text",
            "output_text",
            "refusal",
            "image_url",
            "input_image",
            "input_audio",
        ],
        _USER_PART,
    ]
    image_url: ImageUrl | str | None = None
    input_audio: InputAudio | None = None

    def __post_init__(self) -> None:
        name = "image_url" if self.type in _IMAGES else "input_audio"
        if self.type in {*_IMAGES, "input_audio"}:
            if getattr(self, name) is None:
                raise FieldError(name, "is missing")
            try:
                self.part()
            except MediaError as error:
                raise FieldError(name, "", str(error)) from None

    def part(self) -> str | Picture:
        """The text, the picture or the sound."""
        if self.input_audio is not None and self.type == "input_audio":
            return sound_of(self.input_audio.data)
        if self.type in _IMAGES:
            given = self.image_url
            return picture_at(given.url if isinstance(given, ImageUrl) else given or "")
        return super().part()


class ResultPart(_Part):
    """A part of a tool's result: text or a picture; `UNSEEN` stands for what is neither."""

    image_url: Any = None

    def part(self) -> str | Picture:
        """The text or the picture."""
        if self.type in _IMAGES:
            given = self.image_url
            return picture_of_result(given.get("url") if isinstance(given, dict) else given)
        return super().part() if self.type in _TEXTS else UNSEEN


Content = str | list[TextPart]
UserContent = str | list[UserPart]
Result = str | list[ResultPart]
Arguments = Annotated[
    str | dict[str, Any] | None,
    Meta(description="a JSON object, or one as text; the model is told of any other text as such"),
]


class Called(Fields):
    """A tool that was called."""

    name: Name
    arguments: Arguments = None

    def __post_init__(self) -> None:
        self.call()

    def call(self, call_id: str | None = None) -> MessageCall:
        """The call.

        Raises:
            FieldError: there is too much in the arguments.
        """
        try:
            return message_call(call_id, self.name, self.arguments)
        except UsageError as error:
            raise FieldError("arguments", "", str(error)) from None


class EarlierCall(Fields, kw_only=True):
    """A call in an earlier message."""

    id: CallId | None = None
    type: Literal["function"] | None = None
    function: Called


class _Spoken(Fields, tag_field="role"):
    content: Content
    name: str | None = None


class SystemMessage(_Spoken, tag="system"):
    """A message of the system."""


class DeveloperMessage(_Spoken, tag="developer"):
    """OpenAI's later name of it."""


class UserMessage(Fields, tag_field="role", tag="user"):
    """A message of the user."""

    content: UserContent
    name: str | None = None


class AssistantMessage(Fields, tag_field="role", tag="assistant"):
    """A message of the model. null is how OpenAI's own answers write a reply without text."""

    also: ClassVar[dict[str, Any]] = any_of("content", "tool_calls", "function_call")

    content: Content | UnsetType | None = UNSET
    tool_calls: list[EarlierCall] | None = None
    function_call: Annotated[Called, Meta(description="OpenAI's older form")] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    def __post_init__(self) -> None:
        if self.content is UNSET and not self.tool_calls and self.function_call is None:
            raise FieldError("content", "is missing")

    def message(self) -> Message:
        """The message."""
        calls = tuple(call.function.call(call.id) for call in self.tool_calls or ())
        if self.function_call is not None:
            calls = (*calls, self.function_call.call())
        said = said_by("assistant", None if isinstance(self.content, UnsetType) else self.content)
        reasoning = self.reasoning_content or self.reasoning or ""
        return dataclasses.replace(said, reasoning=reasoning, calls=calls)


class ToolMessage(Fields, tag_field="role", tag="tool"):
    """The result of a call."""

    content: Result | None
    tool_call_id: CallId | None = None
    name: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None


class FunctionMessage(Fields, tag_field="role", tag="function", kw_only=True):
    """The older form of it."""

    content: Result | None
    tool_call_id: CallId | None = None
    name: Name


ChatMessage = (
    SystemMessage
    | DeveloperMessage
    | UserMessage
    | AssistantMessage
    | ToolMessage
    | FunctionMessage
)
ChatMessages = Annotated[
    list[ChatMessage],
    Meta(min_length=1, extra={REFUSAL: "must be an array of at least one message"}),
]


def conversation(given: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The messages; parts of text in one message are put together."""
    return named([_message(message) for message in given])


def named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, results of calls with the name of the tool: some templates show it. Without an
    id, the k-th result after a turn is that of its k-th call.
    """
    found: list[Message] = []
    names: dict[str, str] = {}
    turn: Iterator[MessageCall] = iter(())
    for one in messages:
        if one.role == "tool":
            call = next(turn, None)
            by_place = call.name if call is not None else ""
            name = one.name or (names.get(one.call_id, "") if one.call_id else by_place)
            found.append(one if name == one.name else dataclasses.replace(one, name=name))
            continue
        turn = iter(one.calls)
        names |= {call.id: call.name for call in one.calls if call.id}
        found.append(one)
    return tuple(found)


def as_one(turn: Sequence[Message], between: str) -> Message:
    """The messages of one turn as one, with ``between`` from one to the next."""
    if len(turn) == 1:
        return turn[0]
    texts, at, pictures = list[str](), 0, list[Picture]()
    for one in turn:
        text = one.content
        if (texts or pictures) and (text or one.pictures):
            texts.append(between)
            at += len(between)
        pictures += [dataclasses.replace(p, at=at + p.at) for p in one.pictures]
        if text:
            texts.append(text)
            at += len(text)
    return dataclasses.replace(
        turn[0],
        content="".join(texts),
        reasoning=between.join(one.reasoning for one in turn if one.reasoning),
        calls=tuple(call for one in turn for call in one.calls),
        pictures=tuple(pictures),
    )


def _message(given: ChatMessage) -> Message:
    if isinstance(given, AssistantMessage):
        return given.message()
    if isinstance(given, ToolMessage | FunctionMessage):
        call_id, name = given.tool_call_id or "", given.name or ""
        return dataclasses.replace(said_by("tool", given.content), call_id=call_id, name=name)
    if isinstance(given, UserMessage):
        return said_by("user", given.content)
    return said_by(cast("Role", given.__struct_config__.tag), given.content)


def said_by(role: Role, content: Content | UserContent | Result | None) -> Message:
    """A message with its pictures; parts are put together."""
    if content is None or isinstance(content, str):
        return Message(role, content or "")
    text, pictures = joined(part.part() for part in content)
    return Message(role, text, pictures=pictures)


def thinking_arguments(effort: str | None, given: dict[str, Any] | None) -> str | None:
    """Variables of the chat template: those of the request, and the effort of thinking in the names
    that templates have for it.
    """
    found: dict[str, Any] = {}
    if effort is not None:
        found = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    found |= given or {}
    return json.dumps(found) if found else None
