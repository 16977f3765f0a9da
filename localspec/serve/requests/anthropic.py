"""Requests in the shape of Anthropic's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Body, Fields
from localspec.serve.http.wording import FieldError
from localspec.serve.requests.anthropic_turns import SystemText, Turns, texts_of, turns
from localspec.serve.requests.chat_messages import named
from localspec.serve.requests.generation import (
    GenerationBody,
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

_CHANGING = "x-anthropic-"
"""Begins blocks of the system prompt that differ with each request, such as Claude Code's
x-anthropic-billing-header: with one in front, no prompt would begin as the last one did."""
_LINES = re.compile(rf"(?:\s*+{_CHANGING}[^\n]*+(?:\n|\Z))++")
"""Such lines at the beginning of a text, read once from left to right."""


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


_WITHOUT_EFFECT = (
    *("cache_control", "container", "context_management", "diagnostics", "inference_geo"),
    *("mcp_servers", "speed", "user_profile_id", "workspace_id", "betas"),
)


class CountBody(Body, kw_only=True):
    """The prompt of a message."""

    without_effect: ClassVar[tuple[str, ...]] = _WITHOUT_EFFECT

    model: str | None = None
    messages: Turns
    system: str | list[SystemText] | None = None
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
        kept = [steady for text in texts_of(self.system or []) if (steady := _steady(text))]
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


def _steady(text: str) -> str:
    """A block of the system prompt without the lines at its beginning that change."""
    lines = _LINES.match(text)
    return text[lines.end() :] if lines is not None else text
