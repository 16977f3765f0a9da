"""Types of answers, for ``/openapi.json``. Answers have more fields than are named here: those of
OpenAI's and Anthropic's descriptions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Anything = dict[str, Any]
_Choices = Annotated[list[Anything], Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0)]


class ErrorDetails(Struct):
    """OpenAI's error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Error(Struct):
    """An answer that is an error."""

    error: ErrorDetails


class AnthropicErrorDetails(Struct):
    """Anthropic's error."""

    type: str
    message: str


class AnthropicError(Struct):
    """An answer of Anthropic's interface that is an error."""

    type: Literal["error"]
    error: AnthropicErrorDetails


class ChatCompletion(Struct):
    """A reply to a conversation."""

    id: str
    object: Literal["chat.completion"]
    choices: _Choices
    usage: Anything


class Completion(Struct):
    """The rest of a text."""

    id: str
    object: Literal["text_completion"]
    choices: _Choices
    usage: Anything


class Suggestion(Struct):
    """llama-server's shape of the text at a cursor: of its fields those that were asked for."""

    content: str | None = None
    stop: bool | None = None
    tokens_predicted: _Count | None = None
    tokens_evaluated: _Count | None = None
    stop_type: Literal["eos", "limit", "word"] | None = None


class EmbeddingEntry(Struct):
    """A vector: numbers, or base64 of 32-bit ones, the lowest byte first."""

    object: Literal["embedding"]
    index: _Count
    embedding: list[float] | str


class EmbeddingList(Struct):
    """OpenAI's shape of vectors."""

    object: Literal["list"]
    data: list[EmbeddingEntry]
    model: str
    usage: Anything


class NativeEmbedding(Struct):
    """llama-server's shape of a vector."""

    index: _Count
    embedding: list[list[float]]


class Ranked(Struct):
    """A document's place."""

    index: _Count
    relevance_score: float
    document: Anything | None = None


class Ranking(Struct):
    """Documents, the best first."""

    model: str
    results: list[Ranked]
    usage: Anything


class ResponseAnswer(Struct):
    """OpenAI's newer shape of a reply."""

    id: str
    object: Literal["response"]
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    output: list[Anything]


class MessageAnswer(Struct):
    """Anthropic's shape of a reply."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[Anything]
    stop_reason: str
    usage: Anything


class Count(Struct):
    """Number of the tokens of a prompt."""

    input_tokens: _Count


class Tokens(Struct):
    """The tokens of a text."""

    tokens: list[Any]
    count: _Count


class Text(Struct):
    """The text of tokens."""

    content: str


class Prompt(Struct):
    """The prompt of a conversation."""

    prompt: str


class Model(Struct):
    """A model."""

    id: str
    object: Literal["model"]


class Models(Struct):
    """The models."""

    object: Literal["list"]
    data: list[Model]


class AdapterEntry(Struct):
    """An adapter, as llama-server lists it."""

    id: int
    path: str
    scale: float


class Success(Struct):
    """It was done."""

    success: bool


class OllamaError(Struct):
    """An answer of Ollama's interface that is an error."""

    error: str


class OllamaChat(Struct):
    """Ollama's shape of a reply to a conversation."""

    model: str
    created_at: str
    message: Anything
    done: bool


class OllamaGenerated(Struct):
    """Ollama's shape of a reply to a prompt."""

    model: str
    created_at: str
    response: str
    done: bool


class OllamaModels(Struct):
    """Ollama's lists of models."""

    models: list[Anything]


class OllamaStatus(Struct):
    """What a download does."""

    status: str
    total: _Count | None = None
    completed: _Count | None = None


class Event(Struct):
    """An event of a stream; OpenAPI 3.1 has no form of its own for streams."""

    event: str | None = None
    data: str | None = None
