"""What the interface and the engine process say to each other: JSON lines, version 2.

One message is one JSON object on one line, UTF-8, ended by a newline. Its ``type`` names it; the
other fields are those of the class below. The engine reads commands on its standard input and
writes events on its standard output; anything native code prints goes to the log instead. End of
file on the command pipe means that the interface is gone: the engine stops whatever it does and
exits at once.

Commands (interface to engine)::

    open       options               load a model; the fields of localspec.loading.options.Options.
                                     Answered by loading..., then opened or failed
    reply      id, messages, sampling, seed, max_tokens, stop, draft
                                     answer a conversation (all of it, each time).
                                     Answered by reading..., batch and notice..., then exactly
                                     one finished or failed with the same id
    examine    id, messages, tokens, sampling, seed, max_tokens, rival
                                     look at the place of the last of tokens, the beginning of a
                                     reply, again; see localspec.runtime.Runtime.examine.
                                     Answered by examined or failed
    interrupt  id                    end that reply now and keep what was emitted; it still
                                     ends with finished (finish_reason "interrupt")
    close                            stop what runs, unload and exit with status 0

Events (engine to interface)::

    hello      version, pid          the first line; the interface checks the version
    loading    name, fraction        a model file is being loaded, 0 to 1
    opened     info                  the model is ready; ModelInfo of localspec.core.events
    reading    id, done, total, cached
                                     the prompt is being read
    batch      id, items             tokens and rounds in the order they happened. A token is a
                                     list [token id, text, origin, drafter or null]; a round is
                                     an object with the fields of localspec.core.events.Round. The
                                     first token of a reply is sent at once, after that the
                                     tokens of some rounds share a batch: at most 50 a second
    notice     id, text              one line that the person should know
    finished   id, reply             the whole reply with its statistics; Reply
    examined   id, examination       what stood behind a token; Examination of localspec.core.events
    failed     id, error, message, exit_code
                                     a command failed; id is null if it was not a reply. error
                                     is a class name of localspec.errors, message one line for
                                     the person. The engine lives on and takes the next command

Commands wait in line: a reply sent while another runs starts after it. ``interrupt`` never waits.
Ids are chosen by the interface and should not repeat. A line that cannot be understood is answered
by ``failed`` with error "EngineError" and otherwise ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from localspec.core import codec
from localspec.core.events import Round, Token
from localspec.core.origin import Origin
from localspec.engine.commands import (
    CloseCommand,
    Command,
    ExamineCommand,
    InterruptCommand,
    OpenCommand,
    ReplyCommand,
)
from localspec.engine.events import (
    BatchEvent,
    EngineEvent,
    ExaminedEvent,
    FailedEvent,
    FinishedEvent,
    HelloEvent,
    LoadingEvent,
    NoticeEvent,
    OpenedEvent,
    ReadingEvent,
)
from localspec.errors import EngineError, LocalspecError, UsageError

VERSION = 2
"""2 added examine and examined."""

MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest line either side accepts."""

_COMMANDS: dict[str, type[Command]] = {
    kind.type: kind
    for kind in (OpenCommand, ReplyCommand, ExamineCommand, InterruptCommand, CloseCommand)
}
_EVENTS: dict[str, type[EngineEvent]] = {
    kind.type: kind
    for kind in (
        HelloEvent,
        LoadingEvent,
        OpenedEvent,
        ReadingEvent,
        BatchEvent,
        NoticeEvent,
        FinishedEvent,
        ExaminedEvent,
        FailedEvent,
    )
}


def encode(message: Command | EngineEvent) -> bytes:
    """One line for a message, newline included."""
    if isinstance(message, BatchEvent):
        data: dict[str, Any] = {"id": message.id, "items": [_item(i) for i in message.items]}
    else:
        data = {f.name: codec.encode(getattr(message, f.name)) for f in fields(message)}
    # ASCII is UTF-8, and escapes carry the lone surrogates that half a character may leave.
    line = json.dumps({"type": message.type, **data}, separators=(",", ":"), allow_nan=False)
    return line.encode("ascii") + b"\n"


def decode_command(line: bytes) -> Command:
    """The command on a line; `BadCommandError` if it is none."""
    try:
        data, kind = _parse(line, _COMMANDS)
    except EngineError as error:
        raise BadCommandError(error) from None
    try:
        command: Command = codec.decode(kind, data, kind.type)
    except UsageError as error:  # the right shape, but a sampling parameter out of range
        raise BadCommandError(error, data.get("id")) from None
    except codec.CodecError as error:
        raise BadCommandError(EngineError(str(error)), data.get("id")) from None
    return command


def decode_event(line: bytes) -> EngineEvent:
    """The event on a line; EngineError if it is none."""
    data, kind = _parse(line, _EVENTS)
    try:
        if kind is BatchEvent:
            return _batch(data)
        event: EngineEvent = codec.decode(kind, data, kind.type)
    except codec.CodecError as error:
        raise EngineError(f"not an event of protocol version {VERSION}: {error}") from None
    return event


class BadCommandError(Exception):
    """A line that is no command: the error to answer with, and the reply's id if it has one."""

    def __init__(self, error: LocalspecError, id: object = None) -> None:  # noqa: A002 - the field
        super().__init__(str(error))
        self.error = error
        self.id = id if type(id) is int else None


def _parse(line: bytes, kinds: Mapping[str, type[Any]]) -> tuple[dict[str, Any], type[Any]]:
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise EngineError(f"not a line of the protocol: {_excerpt(line)}") from None
    name = data.pop("type", None) if isinstance(data, dict) else None
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise EngineError(f"not a message of the protocol: {_excerpt(line)}")
    return data, kind


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _excerpt(line: bytes) -> str:
    return ascii(line[:60].decode("utf-8", "replace"))


def _item(item: Token | Round) -> Any:
    if isinstance(item, Token):
        return [item.token, item.text, item.origin.value, item.source]
    return codec.encode(item)


_ORIGINS = {origin.value: origin for origin in Origin}


def _batch(data: dict[str, Any]) -> BatchEvent:
    """By hand, not by type hints: the one message that is sent fifty times a second."""
    if set(data) != {"id", "items"} or type(data["id"]) is not int:
        raise codec.CodecError("batch: expected id and items")
    if not isinstance(data["items"], list):
        raise codec.CodecError("batch.items: expected a list")
    return BatchEvent(data["id"], tuple(_parse_item(item) for item in data["items"]))


def _parse_item(item: object) -> Token | Round:
    if not isinstance(item, list):
        return codec.decode(Round, item, "round")
    if len(item) != 4:
        raise codec.CodecError(f"token: expected 4 items, got {len(item)}")
    token, text, origin, source = item
    if (
        type(token) is not int
        or type(text) is not str
        or type(origin) is not str
        or origin not in _ORIGINS
        or not (source is None or type(source) is str)
    ):
        raise codec.CodecError("token: expected [token id, text, origin, drafter or null]")
    return Token(token, text, _ORIGINS[origin], source)
