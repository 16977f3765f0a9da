"""Requests in the shape of OpenAI's chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Body, Foreign
from localspec.serve.requests.chat_messages import ChatMessages, conversation, thinking_arguments
from localspec.serve.requests.foreign_fields import REFUSED
from localspec.serve.requests.generation import Alternatives, ChoicesBody, TokenLimit, limit
from localspec.serve.requests.offered_tools import ChatTool, OfferedTools, ToolChoice, chat_tools

TemplateArguments = Annotated[
    dict[str, Any], Meta(description="variables of the model's chat template")
]


class ConversationBody(Body, kw_only=True):
    """A conversation, with what else is in its prompt."""

    model: str | None = None
    messages: ChatMessages
    tools: list[ChatTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateArguments | None = None

    def offered(self, given: dict[str, Any]) -> OfferedTools:
        """The tools; ``given`` is the body as it came.

        Raises:
            ApiError: they are invalid.
        """
        several = self.parallel_tool_calls is not False
        return chat_tools(given.get("tools"), self.tool_choice, several=several)

    def request(self, tools: OfferedTools) -> dict[str, Any]:
        """The fields of `ReplyRequest` that have the prompt."""
        arguments = thinking_arguments(self.reasoning_effort, self.chat_template_kwargs)
        return {
            "messages": conversation(self.messages),
            "tools": tools.text,
            "template_arguments": arguments,
        }


class ChatBody(ChoicesBody):
    """What a request for a reply has besides its conversation."""

    parts: ClassVar[tuple[type[Body], ...]] = (ConversationBody,)
    foreign: ClassVar[Mapping[str, Foreign]] = {
        **REFUSED,
        "add_special_tokens": Foreign("the chat template writes them", (False,)),
        "echo": Foreign("use /v1/completions, whose answers may repeat the prompt", (False,)),
    }

    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    reasoning_format: Literal["auto", "none", "deepseek"] | None = None

    def request(
        self, prompt: ConversationBody, tools: OfferedTools, settings: ServeSettings
    ) -> dict[str, Any]:
        """The fields of `ReplyRequest`, alike for all choices.

        Raises:
            ApiError: one is invalid.
        """
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", "top_logprobs")
        most = limit("max_completion_tokens", self.max_completion_tokens)
        others = limit("max_tokens", self.max_tokens)
        request = self.reply_fields(settings, max_tokens=most or others)
        more = {
            "markers": True,
            "drop_oldest": False,
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
        }
        return request | prompt.request(tools) | tools.fields(request["grammar"]) | more
