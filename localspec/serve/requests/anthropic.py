"""Requests in the shape of Anthropic's messages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.errors import MediaError, UsageError
from localspec.core.events import Message, MessageCall
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.picture import UNSEEN, Picture
from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Body, Fields
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.chat_messages import Arguments, as_one, named
from localspec.serve.requests.earlier_calls import message_call
from localspec.serve.requests.generation import (
    CallId,
    GenerationBody,
    Name,
    Stop,
    Stops,
    made,
    texts,
)
from localspec.serve.requests.grammars import JsonSchema, Named, only
from localspec.serve.requests.offered_tools import (
    NAME_SCHEMA,
    PARAMETERS_SCHEMA,
    OfferedTools,
    Strict,
    chat_tool,
    of_others,
    offered,
)
from localspec.serve.requests.pictures import joined, picture_at, picture_of, picture_of_result

_CHANGING = "x-anthropic-"
"""Begins blocks of the system prompt that differ with each request, such as Claude Code's
x-anthropic-billing-header: with one in front, no prompt would begin as the last one did."""
_LINES = re.compile(rf"(?:\s*+{_CHANGING}[^\n]*+(?:\n|\Z))++")
"""Such lines at the beginning of a text, read once from left to right."""
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


_Text = Annotated[TextBlock | FileBlock, _NOT_TEXT]
_Said = Annotated[TextBlock | FileBlock | ImageBlock | ToolResultBlock, _UNREAD]
_Thought = Annotated[
    TextBlock | FileBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock, _NOT_TEXT
]


class SystemTurn(Fields, tag_field="role", tag="system"):
    """A message of the system between others."""

    content: str | list[_Text]

    @property
    def messages(self) -> list[Message]:
        """The message."""
        return [Message("system", "\n\n".join(_texts(self.content)))]


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


_OWN_TOOLS = (None, "custom")
"""Types of tools that the client runs."""


class AnthropicTool(Fields):
    """A tool; those of a type that Anthropic's servers run have no effect."""

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {
                "properties": {
                    "type": {"enum": [*_OWN_TOOLS]},
                    "name": {"type": "string", **NAME_SCHEMA},
                    "input_schema": {"type": "object", **PARAMETERS_SCHEMA},
                },
                "required": ["name", "input_schema"],
            },
            {"properties": {"type": {"not": {"enum": [*_OWN_TOOLS]}}}, "required": ["type"]},
        ]
    }

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: Strict | None = None

    def __post_init__(self) -> None:
        if self.is_function and self.input_schema is None:
            raise FieldError("input_schema", "is missing")

    @property
    def is_function(self) -> bool:
        """Whether the model is told of it."""
        return self.type in _OWN_TOOLS

    @property
    def as_chat(self) -> dict[str, Any]:
        """The tool as OpenAI's chat has it."""
        return chat_tool(self.name, self.description, self.input_schema, strict=self.strict)


class AnthropicToolChoice(Fields):
    """``tool_choice``."""

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"properties": {"type": {"not": {"const": "tool"}}}},
            {"properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]},
        ]
    }

    type: Literal["auto", "any", "tool", "none"] | None = None
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def __post_init__(self) -> None:
        if self.type == "tool" and self.name in {None, "", "none", "auto", "required"}:
            raise FieldError("name", "must be the name of a tool")

    @property
    def word(self) -> str:
        """The choice as OpenAI's chat has it: a word, or the name of a tool."""
        if self.type == "tool":
            return self.name or ""
        return "required" if self.type == "any" else self.type or "auto"


class Thinking(Fields):
    """``thinking``."""

    without_effect: ClassVar[tuple[str, ...]] = ("budget_tokens", "display")

    type: Literal["enabled", "adaptive", "between_tools", "disabled"] | None = None


class OutputFormat(Fields):
    """``output_config.format``."""

    type: Literal["json_schema"] | None = None
    schema: JsonSchema = None


class OutputConfig(Fields):
    """``output_config``."""

    without_effect: ClassVar[tuple[str, ...]] = ("task_budget",)

    effort: str | None = None
    format: OutputFormat | None = None


_EMPTY = "must be an array of at least one message"
Turns = Annotated[
    list[SystemTurn | UserTurn | AssistantTurn], Meta(min_length=1, extra={REFUSAL: _EMPTY})
]
_WITHOUT_EFFECT = (
    *("cache_control", "container", "context_management", "diagnostics", "inference_geo"),
    *("mcp_servers", "speed", "user_profile_id", "workspace_id", "betas"),
)


class CountBody(Body, kw_only=True):
    """The prompt of a message."""

    without_effect: ClassVar[tuple[str, ...]] = _WITHOUT_EFFECT

    model: str | None = None
    messages: Turns
    system: str | list[_Text] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """Tools that run on Anthropic's servers too."""
        return [*of_others(given, *_OWN_TOOLS), *super().ignored(given)]

    def offered(self) -> OfferedTools:
        """The tools that the model is told of.

        Raises:
            ApiError: one is invalid.
        """
        given = [tool.as_chat for tool in self.tools or () if tool.is_function]
        choice = self.tool_choice or AnthropicToolChoice()
        return offered(given, choice.word, several=not choice.disable_parallel_tool_use)

    def prompt_fields(self, tools: OfferedTools, grammars: Sequence[Named] = ()) -> dict[str, Any]:
        """The fields of `ReplyRequest` that have the prompt; ``grammars`` are those that the
        request names beside ``output_config``.

        Raises:
            ApiError: it is invalid.
        """
        return tools.fields(only([*self._format(), *grammars])) | {
            "messages": named((*self._system(), *turns(self._said()))),
            "template_arguments": json.dumps(self._thinking()),
            "markers": True,
            "drop_oldest": False,
        }

    def _format(self) -> list[Named]:
        given = self.output_config.format if self.output_config is not None else None
        try:
            spec = None if given is None else GrammarSpec.schema(given.schema)
        except UsageError as error:
            raise bad_request(str(error), "output_config.format.schema") from None
        return [] if spec is None else [("output_config.format", spec)]

    def _thinking(self) -> dict[str, Any]:
        """Variables of the chat template: the model thinks where the request says so, as
        Anthropic's do.
        """
        kind = self.thinking.type if self.thinking is not None else None
        found: dict[str, Any] = {"enable_thinking": kind not in {None, "disabled"}}
        effort = self.output_config.effort if self.output_config is not None else None
        return found | ({"reasoning_effort": effort} if effort is not None else {})

    def _system(self) -> list[Message]:
        kept = [steady for text in _texts(self.system or []) if (steady := _steady(text))]
        return [Message("system", "\n\n".join(kept))] if kept else []

    def _said(self) -> list[Message]:
        return [message for turn in self.messages for message in turn.messages]


class MessagesBody(GenerationBody, kw_only=True):
    """What a request for a message has besides its prompt."""

    parts: ClassVar[tuple[type[Body], ...]] = (CountBody,)

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: Stop | Stops | None = None

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """Tools that run on Anthropic's servers too."""
        return [*of_others(given, *_OWN_TOOLS), *super().ignored(given)]

    def reply(
        self, prompt: CountBody, tools: OfferedTools, settings: ServeSettings
    ) -> ReplyRequest:
        """The request for a reply.

        Raises:
            ApiError: it is invalid.
        """
        request = self.reply_fields(settings, max_tokens=self.max_tokens)
        request["stop"] = (*request["stop"], *texts(self.stop_sequences))
        return made(request | prompt.prompt_fields(tools, self.grammars()))


def _texts(content: str | Sequence[TextBlock | FileBlock]) -> list[str]:
    return [content] if isinstance(content, str) else [block.said for block in content]


def _steady(text: str) -> str:
    """A block of the system prompt without the lines at its beginning that change."""
    lines = _LINES.match(text)
    return text[lines.end() :] if lines is not None else text


def turns(messages: Iterable[Message]) -> list[Message]:
    """The messages; turns of one side that follow each other are one turn."""
    several = itertools.groupby(enumerate(messages), _side)
    return [as_one([one for _, one in turn], "\n") for _, turn in several]


def _side(numbered: tuple[int, Message]) -> str | int:
    """What messages of one turn have in common; others have nothing in common."""
    number, one = numbered
    return one.role if one.role in {"user", "assistant"} else number
