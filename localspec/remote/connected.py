"""A `localspec serve` elsewhere, as a `localspec.engine.port.Engine`.

The lines of the engine protocol travel over HTTP (`localspec.serve.routes.native`), so all figures
and the origin of every token arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from localspec.core import codec
from localspec.core.errors import (
    EngineError,
    ModelNotFoundError,
    NotServedError,
    RemoteError,
    UsageError,
)
from localspec.core.events import Examination, Finished, Loading, ModelInfo, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.reply_tally import ReplyTally
from localspec.engine import protocol
from localspec.engine.messages import (
    ExamineCommand,
    ExaminedEvent,
    FailedEvent,
    ReplyCommand,
    ReplyEvents,
)
from localspec.engine.port import OnLoading
from localspec.engine.protocol import MAX_LINE
from localspec.media.decoding import file_of
from localspec.remote.address import Address
from localspec.remote.connection import Connection, Patience
from localspec.remote.faults import broken_off, excerpt
from localspec.remote.keys import Key
from localspec.remote.lines import Lines, content_type
from localspec.remote.reply import RemoteReply, ServerClient

_INFO, _REPLY, _EXAMINE = "/localspec/info", "/localspec/reply", "/localspec/examine"
_LOAD_SECONDS = 600.0
"""The server may load its model when it is asked what it has."""
_LINES = "application/x-ndjson"
_MOST_EVENTS = 1 << 22
"""Events of a reply: two for each token of the longest context that there is."""
_TOO_LONG = "the conversation is too long to be sent; shorten the message"


class NamedModel:
    """The model that requests name: the one that the server had when it was connected to."""

    name = ""
    """"" where no request names one: the server told none, as older ones, or has it no more."""

    @contextlib.asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """While a request for it is made. Where the server has it no more, the next request is for
        whichever the server has then.

        Raises:
            RemoteError: the server has it no more.
        """
        try:
            yield
        except ModelNotFoundError as error:
            if not self.name:
                raise
            self.name = ""
            raise RemoteError(f"{error}. What is asked next is for the model that it has") from None


class NativeReply:
    """One request; implements `localspec.remote.reply.ReplySource`."""

    def __init__(self, connection: Connection, request: ReplyRequest, model: NamedModel) -> None:
        """Send nothing yet.

        Raises:
            UsageError: the conversation is larger than a line of the protocol.
        """
        self._connection = connection
        self._request = request
        self._model = model
        self._body = b"" if request.sees else self._encoded(request)
        self._tally = ReplyTally(request.seed)
        self._received = self._characters = 0

    async def events(self, waiting: Callable[[str], None]) -> AsyncIterator[ReplyEvent]:
        """The events until the reply ends.

        Raises:
            LocalspecError: the server refuses, breaks off, or sends something other than a reply.
        """
        connection, tally = self._connection, self._tally
        if not self._body:
            seeing = await asyncio.to_thread(_with_pictures, self._request)
            self._body = self._encoded(seeing)
        address, key = connection.address, connection.key
        asking = connection.stream(_REPLY, self._body, waiting)
        async with self._model.asked(), asking as response:
            kind = content_type(response)
            if kind != _LINES:
                raise RemoteError(f"{address} answers with {excerpt(kind, key)}, not with a reply")
            async for line in Lines(response, connection):
                if not line:
                    continue
                for event in _events(line, address, key):
                    self._count(event)
                    tally.take(event)
                    yield event
                    if isinstance(event, Finished):
                        return
        raise broken_off(address, begun=tally.begun)

    def _encoded(self, request: ReplyRequest) -> bytes:
        return _body(_sent(ReplyCommand(0, request))["request"], self._model.name)

    def _count(self, event: ReplyEvent) -> None:
        """Refuse a reply without end: all of its events are kept until it ends.

        Raises:
            RemoteError: it is longer than any context.
        """
        self._received += 1
        self._characters += len(event.text) if isinstance(event, Token) else 0
        if self._received > _MOST_EVENTS or self._characters > MAX_LINE:
            raise RemoteError(f"{self._connection.address} sent a reply longer than any context")

    def interrupted(self) -> Finished:
        """The end of an interrupted reply, with the part that had arrived."""
        return self._tally.finished("interrupt")


def _with_pictures(request: ReplyRequest) -> ReplyRequest:
    """The request with the bytes of its pictures: their files are on this machine.

    Raises:
        UsageError: they are larger than a line of the protocol.
        MediaError: one cannot be read.
    """
    messages, size = [], 0
    for message in request.messages:
        pictures = []
        for one in message.pictures:
            pictures.append(dataclasses.replace(one, data=file_of(one), path=""))
            size += len(pictures[-1].data)
            if size > protocol.MAX_LINE:
                raise UsageError(_TOO_LONG)
        messages.append(dataclasses.replace(message, pictures=tuple(pictures)))
    return dataclasses.replace(request, messages=tuple(messages))


def _sent(command: ReplyCommand | ExamineCommand) -> dict[str, Any]:
    """A command as the engine protocol has it."""
    found: dict[str, Any] = json.loads(protocol.encode(command))
    return found


def _body(fields: dict[str, Any], model: str) -> bytes:
    """The body of a request to a model; a server that told no name takes none.

    Raises:
        UsageError: it is too large.
    """
    found = json.dumps(fields | ({"model": model} if model else {})).encode("ascii")
    if len(found) > protocol.MAX_LINE:
        raise UsageError(_TOO_LONG)
    return found


def _events(line: bytes, address: Address, key: Key) -> Sequence[ReplyEvent]:
    """The events in a line.

    Raises:
        LocalspecError: it reports a failure, or is no line of the protocol.
    """
    try:
        message = protocol.decode_event(line)
    except EngineError as error:
        raise RemoteError(
            f"{address} sent something that is not part of a reply: {excerpt(str(error), key)}"
        ) from None
    match message:
        case ReplyEvents(_, events):
            return events
        case FailedEvent():
            raise RemoteError(excerpt(message.message, key))
    raise RemoteError(f"{address} sent a message {message.type} in a reply")


class ConnectedClient(ServerClient):
    """A server of ours."""

    why_not_plain = ""
    """Every reply can be made without drafting."""

    def __init__(self, address: Address, key: Key, patience: Patience | None = None) -> None:
        super().__init__(address, key, patience)
        self.model = NamedModel()

    @property
    def server(self) -> str:
        """Address of the server."""
        address = self.connection.address
        return str(address) if address.socket is not None else address.root

    async def _connect(self, on_loading: OnLoading | None) -> ModelInfo:
        if on_loading is not None:
            on_loading(Loading(self.server, 0.0))
        try:
            data = await self.connection.ask(_INFO, seconds=_LOAD_SECONDS)
        except (ModelNotFoundError, NotServedError):
            raise RemoteError(
                f"{self.server} is not a `localspec serve`; reach another server with --url"
            ) from None
        key, version = self.connection.key, data.get("version") if isinstance(data, dict) else None
        if version != protocol.VERSION:
            raise RemoteError(
                f"{self.server} speaks protocol version {excerpt(str(version), key)}, this "
                f"localspec version {protocol.VERSION}; use --url {self.server}/v1, or the same "
                "localspec"
            )
        name = data.get("model")
        self.model.name = name if isinstance(name, str) else ""
        try:
            return codec.decode(ModelInfo, data.get("info"), "info")
        except codec.CodecError as error:
            raise RemoteError(
                f"{self.server} does not say what it has loaded: {excerpt(str(error), key)}"
            ) from None

    def reply(self, request: ReplyRequest) -> RemoteReply:
        """Have a request answered; several may be answered at the same time.

        Raises:
            UsageError: the conversation is too long to be sent.
        """
        if request.seed is None:  # so that a reply that is stopped can be made again
            request = dataclasses.replace(request, seed=secrets.randbits(63))
        return self._begin(NativeReply(self.connection, request, self.model))

    async def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """`Runtime.examine` there.

        Raises:
            LocalspecError: the server does not answer, or what that raises.
        """
        if request.sees:
            request = await asyncio.to_thread(_with_pictures, request)
        sent = _sent(ExamineCommand(0, request, tuple(tokens), rival))
        fields = {name: value for name, value in sent.items() if name not in {"type", "id"}}
        body = _body(fields, self.model.name)
        asking = self.connection.stream(_EXAMINE, body, lambda _: None)
        async with self.model.asked(), asking as response:
            async for line in Lines(response, self.connection):
                try:
                    message = protocol.decode_event(line)
                except EngineError as error:
                    raise RemoteError(excerpt(str(error), self.connection.key)) from None
                if isinstance(message, ExaminedEvent):
                    return message.examination
        raise RemoteError(f"{self.server} gave no answer about this token")
