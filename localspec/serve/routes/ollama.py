"""``POST /api/chat`` and ``/api/generate``: replies in Ollama's shape, one JSON object a line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.engine_times import KeepAlive
from localspec.serve.http.bodies import JSONAnswer, while_connected
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.requests.ollama import OllamaChatBody, OllamaGenerateBody, OllamaReplyBody
from localspec.serve.requests.ollama_options import seconds
from localspec.serve.routes import examples
from localspec.serve.routes.answer_types import OllamaChat, OllamaError, OllamaGenerated
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.ollama_answer import (
    MEDIA_TYPE,
    OllamaAnswer,
    OllamaAsked,
    Said,
    line,
    nanoseconds,
    stamp,
)
from localspec.serve.routes.replying import ask, send

PREFIX = "/api"
CHAT, GENERATE = f"{PREFIX}/chat", f"{PREFIX}/generate"


endpoints = Endpoints()


@endpoints.post(
    CHAT,
    answer=OllamaChat,
    example=examples.OLLAMA_CHAT,
    stream=True,
    stream_type=MEDIA_TYPE,
    error=OllamaError,
)
async def chat(received: Received[OllamaChatBody]) -> Response:
    """A reply to a conversation, in Ollama's shape."""

    def read() -> OllamaAsked:
        tools = received.body.offered(received.given)
        reply = received.body.request(tools, received.service.settings)
        return _asked(received, reply, tools, _as_message)

    return await _answer(received, CHAT, read)


@endpoints.post(
    GENERATE,
    answer=OllamaGenerated,
    example=examples.OLLAMA_GENERATE,
    stream=True,
    stream_type=MEDIA_TYPE,
    error=OllamaError,
)
async def generate(received: Received[OllamaGenerateBody]) -> Response:
    """A reply to a prompt, in Ollama's shape."""

    def read() -> OllamaAsked:
        reply = received.body.request(received.service.settings)
        return _asked(received, reply, OfferedTools(), _as_response)

    return await _answer(received, GENERATE, read)


def _asked(
    received: Received[Any], reply: ReplyRequest | None, tools: OfferedTools, said: Said
) -> OllamaAsked:
    body: OllamaReplyBody = received.body
    return OllamaAsked(
        replies=[] if reply is None else [reply],
        extras=body.wanted(received.given),
        keep=KeepAlive(seconds(body.keep_alive)),
        model=body.model,
        tools=tools,
        said=said,
        logprobs=body.logprobs or False,
        thinks=body.think not in {None, False},
    )


async def _answer(received: Received[Any], path: str, read: Callable[[], OllamaAsked]) -> Response:
    asked = await received.apart(read)
    if not asked.replies:
        return await _loaded(received, asked)
    answer = OllamaAnswer(await ask(received, path, asked), asked)
    return await send(received, answer, stream=received.body.stream is not False)


async def _loaded(received: Received[Any], asked: OllamaAsked) -> Response:
    """Load the model of a request without a prompt; with ``keep_alive`` 0 unload it."""
    service, body = received.service, received.body
    keep = KeepAlive(seconds(body.keep_alive))
    began, reason = time.monotonic(), "load"
    if keep.seconds == 0:
        reason = "unload"
        await service.keep(body.model, keep)
    else:
        await while_connected(received.http, service.load(body.model, keep))
    found = {
        "model": body.model or service.models.present,
        "created_at": stamp(),
        **asked.said("", "", []),
        "done": True,
        "done_reason": reason,
        "total_duration": nanoseconds(time.monotonic() - began),
    }
    if body.stream is not False:
        return Response(line(found), media_type=MEDIA_TYPE)
    return JSONAnswer(found)


def _as_message(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = calls
    return {"message": message}


def _as_response(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    del calls  # a prompt offers no tools
    return {"response": text} | ({"thinking": thinking} if thinking else {})
