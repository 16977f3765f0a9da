"""localspec's own paths: its chat over HTTP, with all figures and the origin of every token.

::

    GET  /localspec/info      {"version", "model", "info"}: the version of the engine protocol, name
                              and ModelInfo of what is loaded, its files by name only
    POST /localspec/reply     a ReplyRequest as JSON; answered by lines of the engine protocol, one
                              ``events`` message each, until an event is finished, or by ``failed``
    POST /localspec/examine   {"request", "tokens", "rival"}; answered by an ``examined`` message

Both may have a field "model", as all other requests; without it, whichever is present is meant.
`localspec.engine.protocol` says what the messages hold. A client interrupts a reply by closing its
connection. Empty lines mean nothing; they keep the connection open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from localspec.core import codec
from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import ModelInfo
from localspec.core.reply_request import ReplyRequest
from localspec.engine import protocol
from localspec.engine.messages import ExamineCommand, ExaminedEvent, FailedEvent, ReplyEvents
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import (
    JSONAnswer,
    read_body_as,
    while_connected,
)
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import ApiError, OpenAIShape, bad_request
from localspec.serve.http.streamed import StreamedAnswer
from localspec.serve.routes import examples
from localspec.serve.routes.endpoint import Endpoints

PREFIX = "/localspec"
PATH = f"{PREFIX}/reply"
MEDIA_TYPE = "application/x-ndjson"
_ID = 0
"""Id of all messages: a connection has one reply."""

T = TypeVar("T")


endpoints = Endpoints()


class NativeShape(OpenAIShape):
    """Errors at these paths: OpenAI's body, and a message of the protocol in a stream."""

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return protocol.encode(FailedEvent.of(_ID, RemoteError(error.message)))


SHAPE = NativeShape(None)


@endpoints.get(f"{PREFIX}/info")
async def info(service: Service, request: Request) -> Response:
    """What is loaded, in full.

    It is loaded first if nothing is.
    """
    options, found = await while_connected(request, service.slots.load())
    head = {"version": protocol.VERSION, "model": await service.name_of(options)}
    return JSONAnswer({**head, "info": codec.encode(_shown(found))})


@endpoints.post_unread(PATH, example=examples.NATIVE, media_type=MEDIA_TYPE)
async def reply(service: Service, request: Request) -> Response:
    """A reply as the engine protocol has it, one message a line."""
    settings = service.settings

    def read(given: dict[str, Any], _: int) -> tuple[str | None, ReplyRequest]:
        model = _model(given)
        asked = _without_files(_decoded(ReplyRequest, given, "request"))
        return model, dataclasses.replace(asked, max_tokens=settings.most_tokens(asked.max_tokens))

    model, asked = await read_body_as(request, settings.limits, read)
    answering = await service.answer(caller_of(request.scope), PATH, model, [asked])
    return StreamedAnswer(
        _lines(answering), settings.limits, failed=SHAPE.event, media_type=MEDIA_TYPE, comment=b"\n"
    )


@endpoints.post_unread(f"{PREFIX}/examine", example=examples.EXAMINE, media_type=MEDIA_TYPE)
async def examine(service: Service, request: Request) -> Response:
    """Probabilities at one place of a reply, as the engine protocol has them."""

    def read(given: dict[str, Any], _: int) -> tuple[str | None, ExamineCommand]:
        model = _model(given)
        command = _decoded(ExamineCommand, {**given, "id": _ID}, "examine")
        _without_files(command.request)
        return model, command

    model, asked = await read_body_as(request, service.settings.limits, read)
    caller = caller_of(request.scope)
    work = service.examine(caller, model, asked.request, asked.tokens, asked.rival)
    found = await while_connected(request, work)
    return Response(protocol.encode(ExaminedEvent(_ID, found)), media_type=MEDIA_TYPE)


async def _lines(answering: Answering) -> AsyncGenerator[bytes, None]:
    """The lines of a reply."""
    async with answering:
        async for _, events in answering:
            yield protocol.encode(ReplyEvents(_ID, tuple(events)))


def _model(given: dict[str, Any]) -> str | None:
    """The name of a model, which is taken out of a body.

    Raises:
        ApiError: it is no name.
    """
    name = given.pop("model", None)
    if not isinstance(name, str | None):
        raise bad_request("model must be a text", "model")
    return name


def _decoded(kind: type[T], given: dict[str, Any], name: str) -> T:
    """The value of a type that a body holds.

    Raises:
        ApiError: there is none.
    """
    try:
        return codec.decode(kind, given, name)
    except (codec.CodecError, UsageError) as error:
        raise bad_request(str(error)) from None


def _without_files(request: ReplyRequest) -> ReplyRequest:
    """The request: a client names no files of this machine.

    Raises:
        ApiError: it names one.
    """
    if any(picture.path for one in request.messages for picture in one.pictures):
        raise bad_request(
            "a server opens no file that a client names in `path`: send its bytes in `data`"
        )
    return request


def _shown(info: ModelInfo) -> ModelInfo:
    """The info that a client may see: no paths of this machine."""
    draft = Path(info.draft).name if info.draft is not None else None
    name = Path(info.name).name if info.name.endswith(".gguf") else info.name
    return dataclasses.replace(
        info, target=Path(info.target).name, draft=draft, name=name, notices=()
    )
