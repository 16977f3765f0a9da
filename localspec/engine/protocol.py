"""The protocol between a client and the engine process: JSON lines, version 12.

One message is one JSON object on one line, UTF-8, ended by a newline. Its ``type`` names it; the
other fields are those of its class. The engine reads commands on its standard input and writes
messages on its standard output; what native code prints goes to the log instead. End of file on
the command pipe means that the client is gone: the engine stops whatever it does and exits at once.

Commands (client to engine, `localspec.engine.messages`)::

    open       options               load a model; the fields of localspec.core.options.Options.
                                     Answered by loading..., then opened or failed
    reply      id, request           answer a request; the fields of
                                     localspec.core.reply_request.ReplyRequest. Answered by
                                     events... with the same id, until the last event is finished,
                                     or by failed
    examine    id, request, tokens, rival
                                     probabilities at the place of the last of tokens, the
                                     beginning of a reply; see localspec.runtime.Runtime.examine.
                                     Answered by examined or failed
    tokenize   id, request, special, bos
                                     text and tokens of a request's prompt; see
                                     localspec.runtime.Runtime.tokenize. Answered by tokenized or
                                     failed
    adapter    id, name, path        load an adapter of the target for requests to come, or unload
                                     the one of that name where path is null; see
                                     localspec.runtime.Runtime.load_adapter. Answered by adapted or
                                     failed
    interrupt  id                    end that reply now and keep what was emitted; it still
                                     ends with finished (finish_reason "interrupt"). examine and
                                     tokenize end with failed, unless they are done before
    close                            stop what runs, unload and exit with status 0

Messages of the engine (`localspec.engine.messages`)::

    hello      version, pid          the first line; the client checks the version
    loading    progress              a model file is being loaded, or something is done before it;
                                     Loading of localspec.core.events
    opened     info                  the model is ready; ModelInfo of localspec.core.events
    events     id, events            events of a reply, in their order. A token is a list
                                     [token id, text, origin, drafter or null], and has a fifth
                                     item where the request asked for logprobs, see
                                     localspec.engine.packing. Any other event is an object: "type"
                                     is format (ReplyFormat), reading, prompt_scored, round, notice
                                     or finished, the other fields are those of the class of that
                                     name in localspec.core.events. Tokens and rounds are sent at
                                     most 30 times a second, or as often as the engine's option
                                     --interval says, the first token and other events at
                                     once; format and reading wait up to a thirtieth of a second
                                     for it
    examined   id, examination       Examination of localspec.core.events
    tokenized  id, tokenized         Tokenized of localspec.core.reply_request
    adapted    id                    an adapter was loaded or unloaded
    failed     id, error, message, exit_code
                                     a command failed; id is null if the command has none. error is
                                     a class name of localspec.core.errors, message one line for the
                                     user. The engine goes on with the next command

Replies and other questions run side by side, replies as many at a time as ``parallel`` of ModelInfo
says; others wait in their order, and more than may wait are answered by ``failed`` with error
"QueueFullError". The events of a reply keep their order, those of several replies are mixed in any
order, and none waits for another: the client must read on, whichever of them it shows. ``open``
ends all replies; ``interrupt`` is executed at once and concerns no other reply. The client chooses
ids and should not repeat them. A line that is not a command is answered by ``failed`` with error
"DefectError", or "UsageError" where it is only a field that is wrong, and otherwise ignored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, get_args

from localspec.core import codec
from localspec.core.errors import DefectError, EngineError, LocalspecError, UsageError
from localspec.engine.messages import (
    Command,
    EngineEvent,
    ExamineCommand,
    FailedEvent,
    ReplyCommand,
    ReplyEvents,
    TokenizeCommand,
    TokenizedEvent,
)
from localspec.engine.packing import packed, packed_text, unpacked, unpacked_text

VERSION = 12
"""2 added examine and examined; 3 sends a ReplyRequest and the events of a reply as they are; with
4 several replies run at a time; 5 has logprobs, prompts as tokens, predictions, tools, template
arguments, the format of replies, and tokenize; 7 has pictures, 8 further samplers and texts with a
gap, 9 steps before loading, whose end is not known, 10 adapters of requests, and
adapter and adapted, 11 corrected and probe_seconds of a round, 12 names of adapters."""

MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest line either side accepts."""

_COMMANDS: dict[str, type[Command]] = {kind.type: kind for kind in get_args(Command)}
_MESSAGES: dict[str, type[EngineEvent]] = {kind.type: kind for kind in get_args(EngineEvent)}


def encode(message: Command | EngineEvent) -> bytes:
    """One line for a message, newline included.

    Raises:
        UsageError: a request holds what cannot be sent, such as a number of more than 64 bits.
        CodecError: another message does.
    """
    if isinstance(message, ReplyEvents):
        data: dict[str, Any] = {"id": message.id, "events": [packed(e) for e in message.events]}
    elif isinstance(message, TokenizedEvent):
        data = {"id": message.id, "tokenized": packed_text(message.tokenized)}
    else:
        asks = isinstance(message, ReplyCommand | ExamineCommand | TokenizeCommand)
        try:
            data = codec.encode(message, sparse=asks, bounded=asks)
        except codec.CodecError as error:
            if asks:
                raise UsageError(f"the request cannot be sent: {error}") from None
            raise
    # ASCII is UTF-8, and escapes carry the lone surrogates that half a character may leave.
    line = _ENCODER.encode({"type": message.type, **data})
    return line.encode("ascii") + b"\n"


def sendable(message: EngineEvent) -> bytes:
    """The line of a message of the engine; where it is longer than a client takes, that of an error
    to whoever waits for it, since a client ends the engine that breaks the protocol.
    """
    line = encode(message)
    if len(line) <= MAX_LINE:
        return line
    error = UsageError(
        f"the answer is too large to be sent: {len(line) >> 20} MB, and {MAX_LINE >> 20} MB is the "
        "most"
    )
    return encode(FailedEvent.of(getattr(message, "id", None), error))


def decode_command(line: bytes) -> Command:
    """The command on a line; `BadCommandError` if it is none."""
    try:
        data, kind = _parse(line, _COMMANDS)
    except EngineError as error:
        raise BadCommandError(DefectError(str(error))) from None
    try:
        command: Command = codec.decode(kind, data, kind.type)
    except UsageError as error:  # the right shape, but a sampling parameter out of range
        raise BadCommandError(error, data.get("id")) from None
    except codec.CodecError as error:
        raise BadCommandError(UsageError(str(error)), data.get("id")) from None
    return command


def decode_event(line: bytes) -> EngineEvent:
    """The engine's message on a line; EngineError if it is none."""
    data, kind = _parse(line, _MESSAGES)
    try:
        if kind is ReplyEvents:
            return _reply_events(data)
        if kind is TokenizedEvent and set(data) == {"id", "tokenized"} and type(data["id"]) is int:
            return TokenizedEvent(data["id"], unpacked_text(data["tokenized"]))
        event: EngineEvent = codec.decode(kind, data, kind.type)
    except codec.CodecError as error:
        raise EngineError(f"not a message of protocol version {VERSION}: {error}") from None
    return event


class BadCommandError(Exception):
    """A line that is not a command: the error to answer with, and the line's id if it has one."""

    def __init__(self, error: LocalspecError, id: object = None) -> None:  # noqa: A002 - the field
        super().__init__(str(error))
        self.error = error
        self.id: int | None = None
        with contextlib.suppress(codec.CodecError):  # else it could not be sent back either
            self.id = codec.decode(int, id)


def _parse(line: bytes, kinds: Mapping[str, type[Any]]) -> tuple[dict[str, Any], type[Any]]:
    try:
        data = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        raise EngineError(f"not a line of the protocol: {_excerpt(line)}") from None
    name = data.pop("type", None) if isinstance(data, dict) else None
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise EngineError(f"not a message of the protocol: {_excerpt(line)}")
    return data, kind


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _excerpt(line: bytes) -> str:
    return ascii(line[:60].decode("utf-8", "replace"))


def _reply_events(data: dict[str, Any]) -> ReplyEvents:
    """Without type hints, for speed: this message is sent up to thirty times a second."""
    if set(data) != {"id", "events"} or type(data["id"]) is not int:
        raise codec.CodecError("events: expected id and events")
    if not isinstance(data["events"], list) or not data["events"]:
        raise codec.CodecError("events.events: expected a list that is not empty")
    return ReplyEvents(data["id"], tuple(unpacked(event) for event in data["events"]))
