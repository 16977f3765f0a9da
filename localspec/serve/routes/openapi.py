"""``/openapi.json``: the description of this server, for people, for generators of clients and for
fuzzers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec import __version__
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer
from localspec.serve.routes import openapi_examples as examples
from localspec.serve.routes import openapi_requests as requests
from localspec.serve.routes.openapi_components import COMPONENTS, EVENT
from localspec.serve.routes.openapi_shapes import ANY_OBJECT, TEXT, Schema, ref

PATH = "/openapi.json"
_FAILURES = {
    "400": "the request is invalid",
    "401": "no API key, or a wrong one, where one is needed",
    "403": "the Host or Origin is not allowed",
    "404": "there is no such model",
    "408": "the body did not arrive in time",
    "413": "the body is too large",
    "415": "the body is compressed",
    "429": "too many requests wait",
    "503": "the engine is loading or was stopped",
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """One method of a path."""

    summary: str
    answer: str
    """Name of the schema of its answer; "" for a text."""
    body: Schema | None = None
    stream: bool = False
    aliases: tuple[str, ...] = ()
    """Further paths."""
    error: str = "Error"
    parameter: str = ""
    """Name of the parameter in the path."""
    example: Schema = field(default_factory=dict)
    """A body with most of its fields."""
    media_type: str = "application/json"
    """Media type of the answer."""

    @property
    def method(self) -> str:
        """GET without a body, POST with one."""
        return "get" if self.body is None else "post"

    def described(self, name: str) -> Schema:
        """The operation in OpenAPI's form."""
        found: Schema = {
            "summary": self.summary,
            "operationId": name,
            "responses": {"200": self._answer(), **self._failures()},
        }
        if self.parameter:
            found["parameters"] = [
                {"name": self.parameter, "in": "path", "required": True, "schema": TEXT}
            ]
        if self.body is not None:
            content: Schema = {"schema": self.body}
            if self.example:
                content["example"] = self.example
            content = {"application/json": content}
            found["requestBody"] = {"required": True, "content": content}
        return found

    def _answer(self) -> Schema:
        kind = self.media_type if self.body is not None else "text/plain"
        content: Schema = {kind: {"schema": TEXT}}
        if self.answer:
            content = {self.media_type: {"schema": ref(self.answer)}}
        if self.stream:
            content["text/event-stream"] = {"schema": EVENT}
        return {"description": "the answer", "content": content}

    def _failures(self) -> Schema:
        content = {"application/json": {"schema": ref(self.error)}}
        return {
            status: {"description": why, "content": content} for status, why in _FAILURES.items()
        }


OPERATIONS: dict[str, _Operation] = {
    "/v1/models": _Operation("The models that requests may name", "Models", aliases=("/models",)),
    "/v1/models/{name}": _Operation("One model", "Model", parameter="name"),
    "/health": _Operation(
        "Whether the model is ready", "Object", aliases=("/v1/health", "/readyz")
    ),
    "/livez": _Operation("Whether the server answers", "Object"),
    "/version": _Operation("The version of localspec", "Object"),
    "/metrics": _Operation("Counters in the form of Prometheus", ""),
    "/props": _Operation(
        "The server and the defaults of requests, as llama.cpp has them", "Object"
    ),
    "/slots": _Operation("The replies that run, as llama.cpp has them", "Objects"),
    "/v1/embeddings": _Operation(
        "Refused: this server has no embeddings",
        "Object",
        ANY_OBJECT,
        aliases=("/embeddings",),
    ),
    "/v1/chat/completions": _Operation(
        "A reply to a conversation, in OpenAI's shape",
        "ChatCompletion",
        requests.CHAT,
        example=examples.CHAT,
        stream=True,
        aliases=("/chat/completions",),
    ),
    "/v1/completions": _Operation(
        "The rest of a text, in OpenAI's shape",
        "Completion",
        requests.COMPLETION,
        example=examples.COMPLETION,
        stream=True,
        aliases=("/completions",),
    ),
    "/v1/responses": _Operation(
        "A response in OpenAI's newer shape; nothing is stored",
        "Response",
        requests.RESPONSE,
        example=examples.RESPONSE,
        stream=True,
        aliases=("/responses",),
    ),
    "/v1/messages": _Operation(
        "A message in Anthropic's shape",
        "Message",
        requests.MESSAGE,
        example=examples.MESSAGE,
        stream=True,
        error="AnthropicError",
    ),
    "/v1/messages/count_tokens": _Operation(
        "The tokens that the prompt of a message has",
        "Count",
        requests.COUNT,
        example=examples.COUNT,
        error="AnthropicError",
    ),
    "/localspec/info": _Operation("What is loaded, in full", "Object"),
    "/localspec/reply": _Operation(
        "A reply as the engine protocol has it, one message a line",
        "",
        ANY_OBJECT,
        example=examples.NATIVE,
        media_type="application/x-ndjson",
    ),
    "/localspec/examine": _Operation(
        "Probabilities at one place of a reply, as the engine protocol has them",
        "",
        ANY_OBJECT,
        example=examples.EXAMINE,
        media_type="application/x-ndjson",
    ),
    "/tokenize": _Operation(
        "The tokens of a text or conversation",
        "Tokens",
        requests.TOKENIZE,
        example=examples.TOKENIZE,
    ),
    "/detokenize": _Operation(
        "The text of tokens", "Text", requests.DETOKENIZE, example=examples.DETOKENIZE
    ),
    "/tokenizer_info": _Operation("The tokens that begin and end a text", "Object"),
    "/apply-template": _Operation(
        "The prompt of a conversation", "Prompt", requests.TEMPLATE, example=examples.TEMPLATE
    ),
    PATH: _Operation("This description", "Object"),
}
"""The operations by path."""


@functools.cache
def description() -> dict[str, Any]:
    """The whole description; it is the same for every model and address."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "localspec",
            "version": __version__,
            "description": "Exact speculative decoding behind the APIs of OpenAI and Anthropic.",
        },
        "paths": {
            path: {
                operation.method: operation.described(
                    "_".join(part.strip("{}.") for part in path.split("/") if part)
                )
            }
            for path, operation in OPERATIONS.items()
        },
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def routes(service: Service) -> list[BaseRoute]:
    """The endpoint."""
    del service
    return [Route(PATH, _answer, methods=["GET"])]


async def _answer(request: Request) -> Response:
    del request
    return JSONAnswer(description())


__all__ = ["OPERATIONS", "PATH", "description", "routes"]
