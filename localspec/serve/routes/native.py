"""localspec's own paths: its chat over HTTP, with all figures and the origin of every token.

::

    GET  /localspec/info      {"version", "info"}: the version of the engine protocol, and ModelInfo
                              of what is loaded, its files by name only
    POST /localspec/reply     a ReplyRequest as JSON; answered by lines of the engine protocol, one
                              ``events`` message each, until an event is finished, or by ``failed``
    POST /localspec/examine   {"request", "tokens", "rival"}; answered by an ``examined`` message

`localspec.engine.protocol` says what the messages hold. A client interrupts a reply by closing its
connection. Empty lines mean nothing; they keep the connection open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

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
    StreamedAnswer,
    elsewhere,
    read_body,
    while_connected,
)
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import ApiError, bad_request
from localspec.serve.http.json_body import parse
from localspec.serve.http.settings import ServeSettings
from localspec.serve.routes import examples
from localspec.serve.routes.endpoint import get, post_untyped

PREFIX = "/localspec"
PATH = f"{PREFIX}/reply"
MEDIA_TYPE = "application/x-ndjson"
_ID = 0
"""Id of all messages: a connection has one reply."""

T = TypeVar("T")


def routes(service: Service) -> list[BaseRoute]:
    """The paths."""
    own = Native(service)
    return [
        *get(f"{PREFIX}/info", own.info, "What is loaded, in full"),
        *post_untyped(
            PATH,
            own.reply,
            "A reply as the engine protocol has it, one message a line",
            example=examples.NATIVE,
            media_type=MEDIA_TYPE,
        ),
        *post_untyped(
            f"{PREFIX}/examine",
            own.examine,
            "Probabilities at one place of a reply, as the engine protocol has them",
            example=examples.EXAMINE,
            media_type=MEDIA_TYPE,
        ),
    ]


class NativeShape:
    """Errors at these paths: OpenAI's body, and a message of the protocol in a stream."""

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        return error.body

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return protocol.encode(FailedEvent.of(_ID, RemoteError(error.message)))


SHAPE = NativeShape()


class Native:
    """The paths."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def info(self, request: Request) -> Response:
        """Describes the loaded pair; loads it first if there is none."""
        info = await while_connected(request, self._service.slot.load())
        return JSONAnswer({"version": protocol.VERSION, "info": codec.encode(_shown(info))})

    async def reply(self, request: Request) -> Response:
        """Answer one request, line by line."""
        service = self._service
        raw = await read_body(request, service.settings.limits)
        asked = _limited(await elsewhere(len(raw), lambda: _reply_of(raw)), service.settings)
        answering = await service.answer(caller_of(request.scope), PATH, None, [asked])
        return StreamedAnswer(
            _lines(answering),
            service.settings.limits,
            shape=SHAPE,
            media_type=MEDIA_TYPE,
            comment=b"\n",
        )

    async def examine(self, request: Request) -> Response:
        """Probabilities at one place of a reply."""
        service = self._service
        raw = await read_body(request, service.settings.limits)
        command = await elsewhere(len(raw), lambda: _examine_of(raw))
        work = service.examine(
            caller_of(request.scope), command.request, command.tokens, command.rival
        )
        found = await while_connected(request, work)
        return Response(protocol.encode(ExaminedEvent(_ID, found)), media_type=MEDIA_TYPE)


async def _lines(answering: Answering) -> AsyncIterator[bytes]:
    """The lines of a reply."""
    async with answering:
        async for _, events in answering:
            yield protocol.encode(ReplyEvents(_ID, tuple(events)))


def _reply_of(raw: bytes) -> ReplyRequest:
    data = parse(raw)
    return _without_files(_read(lambda: codec.decode(ReplyRequest, data, "request")))


def _examine_of(raw: bytes) -> ExamineCommand:
    data = parse(raw)
    command = _read(lambda: codec.decode(ExamineCommand, {**data, "id": _ID}, "examine"))
    _without_files(command.request)
    return command


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


def _limited(request: ReplyRequest, settings: ServeSettings) -> ReplyRequest:
    """The request with as many tokens as the server gives at most."""
    most = settings.max_tokens
    if most is None:
        return request
    asked = request.max_tokens
    return dataclasses.replace(request, max_tokens=most if asked is None else min(most, asked))


def _read(decode: Callable[[], T]) -> T:
    """The value in a body.

    Raises:
        ApiError: there is none.
    """
    try:
        return decode()
    except (codec.CodecError, UsageError) as error:
        raise bad_request(str(error)) from None


def _shown(info: ModelInfo) -> ModelInfo:
    """The info that a client may see: no paths of this machine."""
    draft = Path(info.draft).name if info.draft is not None else None
    name = Path(info.name).name if info.name.endswith(".gguf") else info.name
    return dataclasses.replace(
        info, target=Path(info.target).name, draft=draft, name=name, notices=()
    )
