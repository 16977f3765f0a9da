"""Requests in the shape of OpenAI's responses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import NOT_NULL, Fields
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.chat import TemplateArguments
from localspec.serve.requests.chat_messages import named, thinking_arguments
from localspec.serve.requests.generation import Alternatives, GenerationBody, made
from localspec.serve.requests.grammars import AnySchema, FollowedSchema, FormatType, Named
from localspec.serve.requests.offered_tools import ChoiceWord, OfferedTools, of_others, offered
from localspec.serve.requests.responses_input import InputItem, turns
from localspec.serve.requests.responses_tools import NamedResponseTool, ResponseTool

_LOGPROBS = "message.output_text.logprobs"
_NOTHING_STORED = "nothing is stored here: send the whole conversation in input"
_STORED = {
    "previous_response_id": "names an earlier response",
    "conversation": "names a stored conversation",
    "prompt": "names a stored prompt",
}
_NO_INPUT = Meta(min_length=1, extra={REFUSAL: "must be a text or hold at least one item"})


class TextFormat(Fields):
    """``text.format``."""

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"properties": {"type": {"not": {"const": "json_schema"}}}},
            {"properties": {"schema": NOT_NULL}, "required": ["schema"]},
        ]
    }

    without_effect: ClassVar[tuple[str, ...]] = ("description",)

    type: FormatType
    name: str | None = None
    schema: AnySchema = None
    strict: FollowedSchema | None = None

    def __post_init__(self) -> None:
        if self.type == "json_schema" and self.schema is None:
            raise FieldError("schema", "is missing")


class TextOptions(Fields):
    """``text``."""

    without_effect: ClassVar[tuple[str, ...]] = ("verbosity",)

    format: TextFormat | None = None


class ReasoningOptions(Fields):
    """``reasoning``."""

    without_effect: ClassVar[tuple[str, ...]] = ("summary", "generate_summary", "context")

    effort: str | None = None


_CHOICE = Meta(extra={REFUSAL: 'must be none, auto, required or {"type": "function", "name": ...}'})


class ResponsesBody(GenerationBody, kw_only=True):
    """A request for a response."""

    without_effect: ClassVar[tuple[str, ...]] = (
        *GenerationBody.without_effect,
        *("stream_options", "max_tool_calls", "moderation", "context_management", "image"),
        *("prompt_cache_options", "background_options", "access_programs", "client_metadata"),
        "max_tokens",
    )

    input: str | Annotated[list[InputItem], _NO_INPUT]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    include: str | list[str] | None = None
    top_logprobs: Alternatives | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Annotated[ChoiceWord | NamedResponseTool, _CHOICE] | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    chat_template_kwargs: TemplateArguments | None = None
    background: Literal[False] | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None

    @classmethod
    def completed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The body, in which items without a type are messages.

        Raises:
            ApiError: it refers to something stored, which is said before what else is wrong with
                it: clients that count on stored responses send items that only these explain.
        """
        for name, what in _STORED.items():
            if given.get(name) is not None:
                raise bad_request(f"{name} {what}, and {_NOTHING_STORED}", name)
        if given.get("background") is True:
            said = "background is not possible: nothing is stored here"
            raise bad_request(said, "background")
        items = given.get("input")
        if not isinstance(items, list):
            return given
        typed = [
            {**item, "type": "message"}
            if isinstance(item, dict) and item.get("type") is None
            else item
            for item in items
        ]
        return {**given, "input": typed}

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """Tools that run on OpenAI's servers too."""
        return [*of_others(given, "function"), *super().ignored(given)]

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has log-probabilities."""
        return _LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    def offered(self) -> OfferedTools:
        """The tools that the model is told of.

        Raises:
            ApiError: one is invalid.
        """
        given = [tool.as_chat for tool in self.tools or () if tool.is_function]
        choice, several = self.tool_choice, self.parallel_tool_calls is not False
        if isinstance(choice, NamedResponseTool):
            return offered(given, choice.choice, several=several, allowed=choice.allowed)
        return offered(given, choice or "auto", several=several)

    def reply(self, tools: OfferedTools, settings: ServeSettings) -> ReplyRequest:
        """The request for a reply.

        Raises:
            ApiError: it is invalid.
        """
        request = self.reply_fields(settings, max_tokens=self.max_output_tokens)
        effort = self.reasoning.effort if self.reasoning is not None else None
        request |= tools.fields(request["grammar"]) | {
            "messages": self._messages(),
            "template_arguments": thinking_arguments(effort, self.chat_template_kwargs),
            "markers": True,
            "drop_oldest": self.truncation == "auto",
            "logprobs": (self.top_logprobs or 0) if self.wants_logprobs else None,
        }
        return made(request)

    def echo(self, given: dict[str, Any]) -> dict[str, Any]:
        """Fields of the answer that repeat the request, which came as ``given``."""
        text = given.get("text") or {}
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {
                "effort": self.reasoning.effort if self.reasoning is not None else None,
                "summary": None,
            },
            "store": False,
            "temperature": _number(given.get("temperature")),
            "text": {"format": text.get("format") or {"type": "text"}},
            "tool_choice": given.get("tool_choice") or "auto",
            "tools": [tool.echoed for tool in self.tools or () if tool.is_function],
            "top_p": _number(given.get("top_p")),
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }

    def grammars(self) -> list[Named]:
        """See `GrammarFields.grammars`; ``text.format`` names one too."""
        given = self.text.format if self.text is not None else None
        if given is None or given.type == "text":
            return super().grammars()
        try:
            alone = given.type == "json_object"
            spec = GrammarSpec.json_object() if alone else GrammarSpec.schema(given.schema)
        except UsageError as error:
            raise bad_request(f"text.format: {error}", "text.format.schema") from None
        return [("text.format", spec), *super().grammars()]

    def _messages(self) -> tuple[Message, ...]:
        head = [Message("system", self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            return (*head, Message("user", self.input))
        return named([*head, *turns(item.message for item in self.input)])


def _number(given: Any) -> float | None:
    return None if given is None else float(given)
