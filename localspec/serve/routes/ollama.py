"""``POST /api/chat`` and ``/api/generate``: replies in Ollama's shape, one JSON object a line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.requests.ollama import OllamaChatBody, OllamaGenerateBody, OllamaReplyBody
from localspec.serve.requests.ollama_options import seconds
from localspec.serve.routes import examples
from localspec.serve.routes.answers import OllamaChat, OllamaError, OllamaGenerated
from localspec.serve.routes.endpoint import Received, post
from localspec.serve.routes.ollama_answer import (
    FILLER,
    MEDIA_TYPE,
    OLLAMA,
    Answer,
    OllamaRequest,
    Said,
    line,
    nanoseconds,
    stamp,
)

PREFIX = "/api"
CHAT, GENERATE = f"{PREFIX}/chat", f"{PREFIX}/generate"


def routes(service: Service) -> list[BaseRoute]:
    """The endpoints."""
    replies = Replies(service)
    described: dict[str, Any] = {"stream": True, "stream_type": MEDIA_TYPE, "error": OllamaError}
    return [
        *post(
            service,
            CHAT,
            replies.chat,
            "A reply to a conversation, in Ollama's shape",
            body=OllamaChatBody,
            answer=OllamaChat,
            example=examples.OLLAMA_CHAT,
            **described,
        ),
        *post(
            service,
            GENERATE,
            replies.generate,
            "A reply to a prompt, in Ollama's shape",
            body=OllamaGenerateBody,
            answer=OllamaGenerated,
            example=examples.OLLAMA_GENERATE,
            **described,
        ),
    ]


class Replies:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, received: Received[OllamaChatBody]) -> Response:
        """Answer a conversation."""
        return await self._answer(CHAT, received, lambda: self._read_chat(received))

    async def generate(self, received: Received[OllamaGenerateBody]) -> Response:
        """Continue a prompt."""
        return await self._answer(GENERATE, received, lambda: self._read_prompt(received))

    def _read_chat(self, received: Received[OllamaChatBody]) -> OllamaRequest:
        body = received.body
        tools = body.offered(received.given)
        reply = body.request(tools, self._service.settings)
        return self._asked(received, reply, tools, _as_message)

    def _read_prompt(self, received: Received[OllamaGenerateBody]) -> OllamaRequest:
        reply = received.body.request(self._service.settings)
        return self._asked(received, reply, OfferedTools(), _as_response)

    def _asked(
        self, received: Received[Any], reply: ReplyRequest | None, tools: OfferedTools, said: Said
    ) -> OllamaRequest:
        body: OllamaReplyBody = received.body
        return OllamaRequest(
            reply=reply,
            tools=tools,
            said=said,
            logprobs=body.logprobs or False,
            thinks=body.think not in {None, False},
            extras=body.wanted(received.given),
        )

    async def _answer(
        self, path: str, received: Received[Any], read: Callable[[], OllamaRequest]
    ) -> Response:
        service, request, body = self._service, received.http, received.body
        asked = await received.apart(read)
        if asked.reply is None:
            return await self._loaded(received, asked)
        answering = await service.answer(
            caller_of(request.scope),
            path,
            body.model,
            [asked.reply],
            strict=asked.extras.strict,
        )
        service.keep(await service.models.options(body.model), seconds(body.keep_alive))
        answer = Answer(answering, asked, body.model)
        if body.streams:
            return StreamedAnswer(
                answer.parts(),
                service.settings.limits,
                shape=OLLAMA,
                media_type=MEDIA_TYPE,
                comment=FILLER,
            )
        return await while_connected(request, answer.whole())

    async def _loaded(self, received: Received[Any], asked: OllamaRequest) -> Response:
        """Load the model of a request without a prompt; with ``keep_alive`` 0 unload it."""
        service, body = self._service, received.body
        wanted = seconds(body.keep_alive)
        began, reason = time.monotonic(), "load"
        if wanted == 0:
            await service.models.options(body.model)
            reason = "unload"
        else:
            await while_connected(received.http, service.load(body.model))
        service.keep(await service.models.options(body.model), wanted)
        found = {
            "model": body.model or service.models.present,
            "created_at": stamp(),
            **asked.said("", "", []),
            "done": True,
            "done_reason": reason,
            "total_duration": nanoseconds(time.monotonic() - began),
        }
        if body.streams:
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
