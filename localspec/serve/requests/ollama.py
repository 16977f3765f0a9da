"""Requests in Ollama's shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.errors import MediaError
from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.infill import Infill
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Body, Fields, Foreign, any_of
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.chat_messages import named, thinking_arguments
from localspec.serve.requests.earlier_calls import message_call
from localspec.serve.requests.embeddings import MOST_TEXTS, Dimensions, ModelName
from localspec.serve.requests.generation import (
    LONGEST_NAME,
    Alternatives,
    CallId,
    Drafting,
    Extras,
    Name,
    made,
    seed_of,
    texts,
)
from localspec.serve.requests.grammars import checked_grammar
from localspec.serve.requests.offered_tools import ChatTool, OfferedTools, chat_tools
from localspec.serve.requests.ollama_options import KeepAlive, OllamaOptions, with_flag
from localspec.serve.requests.pictures import joined, picture_at, picture_of

_FORMAT = Meta(
    description='"json", or a JSON schema', extra={REFUSAL: 'must be "json" or a JSON schema'}
)
Format = Annotated[Literal["", "json"] | dict[str, Any], _FORMAT]
_THINK = Meta(extra={REFUSAL: "must be true, false, low, medium, high or max"})
Think = Annotated[bool | Literal["low", "medium", "high", "max"], _THINK]
Image = Annotated[str, Meta(description="a picture in base64")]


class OllamaEmbedBody(Body, kw_only=True):
    """/api/embed."""

    without_effect: ClassVar[tuple[str, ...]] = ("keep_alive", "options")

    input: Annotated[
        Annotated[str, Meta(min_length=1)]
        | Annotated[
            list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=MOST_TEXTS)
        ],
        Meta(description="a text, or several"),
    ]
    model: ModelName | None = None
    truncate: Annotated[bool, Meta(description="texts that are too long lose their end")] | None = (
        None
    )
    dimensions: Dimensions | None = None

    def texts(self) -> list[str]:
        """All texts."""
        return [self.input] if isinstance(self.input, str) else self.input


class OllamaPromptBody(Body, kw_only=True):
    """/api/embeddings."""

    without_effect: ClassVar[tuple[str, ...]] = ("keep_alive", "options")

    prompt: Annotated[str, Meta(min_length=1, description="a text")]
    model: ModelName | None = None


class OllamaReplyBody(Body, kw_only=True):
    """What both endpoints for replies have."""

    model: Annotated[str, Meta(description="a name of /api/tags; absent: the present")] | None = (
        None
    )
    stream: Annotated[bool, Meta(description="true unless given")] | None = None
    options: OllamaOptions | None = None
    format: Format | None = None
    think: Think | None = None
    keep_alive: KeepAlive | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    localspec: Drafting | None = None

    def without_effect_in(self, given: dict[str, Any]) -> list[str]:
        """What has no effect in ``given``, the body as it came, with the flags in place of it."""
        return [*map(with_flag, super().without_effect_in(given))]

    def wanted(self, given: dict[str, Any]) -> Extras:
        """The parts of the answer that it asks for; ``given`` is the body as it came."""
        return (self.localspec or Drafting()).extras(self.notices(given))

    def _reply(self, settings: ServeSettings, grammar: GrammarSpec | None) -> dict[str, Any]:
        """The fields of `ReplyRequest` but the prompt.

        Raises:
            ApiError: one is invalid.
        """
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", "top_logprobs")
        options = self.options or OllamaOptions()
        wanted = options.num_predict
        most = wanted if wanted is not None and wanted > 0 else None
        return {
            "sampling": options.sampling(settings.sampling),
            "seed": seed_of("options.seed", options.seed),
            "max_tokens": settings.most_tokens(most),
            "stop": texts(options.stop),
            "grammar": grammar,
            "markers": True,
            "drop_oldest": False,
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
            "template_arguments": _thinking(self.think),
            **(self.localspec or Drafting()).fields(),
        }

    def _followed(self) -> GrammarSpec | None:
        """The grammar of the reply; None: any text.

        Raises:
            ApiError: the format is no schema.
        """
        if not self.format and not isinstance(self.format, dict):
            return None
        if self.format == "json":
            return GrammarSpec.json_object()
        return checked_grammar("format", GrammarSpec.schema, self.format)


class CalledFunction(Fields):
    """The function of an earlier call."""

    name: Name
    arguments: dict[str, Any] | None = None


class OllamaCall(Fields, kw_only=True):
    """An earlier call of a tool."""

    id: CallId | None = None
    type: str | None = None
    function: CalledFunction


class OllamaMessage(Fields):
    """A message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[Image] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    tool_call_id: CallId | None = None

    def __post_init__(self) -> None:
        if self.images and self.role not in {"user", "tool"}:
            raise FieldError("images", "belong to messages of the user")
        self.message()

    def message(self) -> Message:
        """The message; pictures come before its text.

        Raises:
            FieldError: one of them is none.
        """
        content, pictures = joined([*pictures_of(self.images), self.content or ""])
        calls = tuple(
            message_call(call.id, call.function.name, call.function.arguments)
            for call in self.tool_calls or ()
        )
        return Message(
            self.role,
            content,
            reasoning=self.thinking or "",
            calls=calls,
            call_id=self.tool_call_id or "",
            name=self.tool_name or "",
            pictures=pictures,
        )


class OllamaChatBody(OllamaReplyBody, kw_only=True):
    """A conversation; without messages, the model is loaded."""

    messages: list[OllamaMessage] | None = None
    tools: list[ChatTool] | None = None

    def offered(self, given: dict[str, Any]) -> OfferedTools:
        """The tools; ``given`` is the body as it came.

        Raises:
            ApiError: they are invalid.
        """
        return chat_tools(given.get("tools"), None, several=True)

    def request(self, tools: OfferedTools, settings: ServeSettings) -> ReplyRequest | None:
        """The request for the reply; None where there is nothing to reply to.

        Raises:
            ApiError: a field is invalid.
        """
        fields = self._reply(settings, self._followed())
        fields |= tools.fields(fields["grammar"])
        if not self.messages:
            return None
        return made(fields | {"messages": named([one.message() for one in self.messages])})


_IMAGE_MODEL = "this server makes no pictures"


class OllamaGenerateBody(OllamaReplyBody, kw_only=True):
    """A prompt; without one, the model is loaded."""

    foreign: ClassVar[Mapping[str, Foreign]] = {
        "context": Foreign("send the conversation to /api/chat instead", ([],)),
        "template": Foreign("the chat template is the model's own; send raw: true", ("",)),
        **dict.fromkeys(("width", "height", "steps"), Foreign(_IMAGE_MODEL, (0,))),
    }

    prompt: str | None = None
    suffix: Annotated[str, Meta(description="the text behind a gap to be filled")] | None = None
    system: str | None = None
    raw: bool | None = None
    images: list[Image] | None = None

    def __post_init__(self) -> None:
        pictures_of(self.images)

    def request(self, settings: ServeSettings) -> ReplyRequest | None:
        """The request for the reply; None where there is nothing to reply to.

        Raises:
            ApiError: a field is invalid.
        """
        fields = self._reply(settings, self._followed())
        if self.raw and (self.images or self.system):
            name = "images" if self.images else "system"
            raise bad_request(f"{name} has no place in a raw prompt; leave out raw", name)
        if self.suffix:
            return made(fields | self._gap(settings))
        if not self.prompt and not self.images:
            return None
        if self.raw:
            plain = {"prompt": self.prompt, "template_arguments": None, "markers": False}
            return made(fields | plain)
        text, pictures = joined([*pictures_of(self.images), self.prompt or ""])
        said = (Message("user", text, pictures=pictures),)
        system = (Message("system", self.system),) if self.system else ()
        return made(fields | {"messages": system + said})

    def _gap(self, settings: ServeSettings) -> dict[str, Any]:
        """The fields of a request that fills the gap between prompt and suffix.

        Raises:
            ApiError: it has what belongs to a conversation.
        """
        for name in ("system", "images", "raw"):
            if getattr(self, name):
                said = f"{name} has no place beside suffix: the model reads the text around a gap"
                raise bad_request(said, name)
        gap = Infill(self.prompt or "", self.suffix or "", suffix_first=settings.suffix_first)
        return {"infill": gap, "template_arguments": None, "markers": False}


class OllamaModelBody(Body, kw_only=True):
    """The name of a model; ``name`` is Ollama's older field."""

    also: ClassVar[dict[str, Any]] = any_of("model", "name", type="string", minLength=1)
    without_effect: ClassVar[tuple[str, ...]] = ("verbose", "insecure")

    model: str | None = None
    name: str | None = None

    @property
    def wanted(self) -> str:
        """The name.

        Raises:
            ApiError: there is none.
        """
        found = self.model or self.name
        if not found:
            raise bad_request("model is missing: the name of the model", "model")
        return found


class OllamaPullBody(OllamaModelBody, kw_only=True):
    """A model to download."""

    stream: Annotated[bool, Meta(description="true unless given")] | None = None


def pictures_of(images: list[str] | None) -> list[str | Picture]:
    """The pictures.

    Raises:
        FieldError: one of them is none.
    """
    found: list[str | Picture] = []
    for at, image in enumerate(images or ()):
        try:
            found.append(picture_at(image) if image.startswith("data:") else picture_of(image))
        except MediaError as error:
            raise FieldError("images", "", f"images[{at}]: {error}") from None
    return found


def _thinking(think: bool | str | None) -> str | None:
    if isinstance(think, str):
        return thinking_arguments(think, None)
    return None if think is None else json.dumps({"enable_thinking": think})
