"""Fetches a reply over OpenAI's interface; pictures and sounds travel along, as bytes in base64."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx2

from localspec.core.errors import MediaError, RemoteError, UsageError
from localspec.core.events import Finished, Message, Notice, ReplyEvent
from localspec.core.picture import Picture, is_sound, picture_type
from localspec.media.decoding import called, file_of
from localspec.remote.chunk import DONE, parse
from localspec.remote.connection import Connection
from localspec.remote.faults import broken_off, excerpt
from localspec.remote.lines import Lines, content_type, server_sent, whole
from localspec.remote.reported import difference, read_counters
from localspec.remote.tally import Tally

MOST_BYTES = 64 << 20
"""Bytes of all files of one request, which the server has to hold."""
_SOUNDS = {b"RIFF": "wav", b"fLaC": "flac", b"OggS": "ogg"}
"""Names of the formats of sounds by their first four bytes; all others are MP3."""

_STREAM, _JSON = "text/event-stream", "application/json"


def message_parts(given: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages; a text is in parts where pictures stand in it. Files are read: this blocks.

    Raises:
        MediaError: a picture cannot be read, is of no known kind, or they are too large together.
    """
    total, found = 0, []
    for message in given:
        content: str | list[dict[str, Any]] = message.content
        if message.pictures:
            files = [file_of(picture) for picture in message.pictures]
            total += sum(map(len, files))
            if total > MOST_BYTES:
                raise MediaError(
                    f"the pictures of this conversation have more than {MOST_BYTES >> 20} MB "
                    "together, which is the most for a server elsewhere: begin a new chat, or "
                    "leave out earlier ones"
                )
            content = _parts(message, files)
        found.append({"role": message.role, "content": content})
    return found


def _parts(message: Message, files: Sequence[bytes]) -> list[dict[str, Any]]:
    """The parts of a message. The end of a line at a picture is the one between two parts."""
    found: list[dict[str, Any]] = []
    begun = 0
    for picture, data in zip(message.pictures, files, strict=True):
        text = message.content[begun : picture.at].removesuffix("\n")
        found += [*_text(text, after=bool(found)), _part(picture, data)]
        begun = max(begun, picture.at)
    return found + _text(message.content[begun:], after=True)


def _text(text: str, *, after: bool) -> list[dict[str, Any]]:
    said = text.removeprefix("\n") if after else text
    return [{"type": "text", "text": said}] if said else []


def _part(picture: Picture, data: bytes) -> dict[str, Any]:
    """One picture or sound.

    Raises:
        MediaError: it is neither.
    """
    begins, text = data[:16], base64.b64encode(data).decode("ascii")
    if is_sound(begins):
        sound = {"data": text, "format": _SOUNDS.get(begins[:4], "mp3")}
        return {"type": "input_audio", "input_audio": sound}
    kind = picture_type(begins)
    if kind is None:
        raise MediaError(
            f"{called(picture)} is of no known kind: there are PNG, JPEG, WEBP, GIF and BMP, and "
            "WAV, MP3 and FLAC"
        )
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}}


class OpenAIReply:
    """One request; implements `localspec.remote.reply.ReplySource`."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        body: dict[str, Any],
        tally: Tally,
        *,
        seen: Sequence[Message] = (),
        counters: bool = False,
        spare: Mapping[str, str] | None = None,
        on_left_out: Callable[[set[str]], None] = lambda _: None,
    ) -> None:
        """``seen`` are the messages of the body where there are pictures in them, whose files are
        read when the reply begins. With ``counters`` the server's ``/metrics`` tells what the reply
        does not. ``spare`` has fields that may be left out if the server refuses them, with our
        names of them, of which ``on_left_out`` is told.
        """
        self._connection, self._path = connection, path
        self._body, self._seen = body, seen
        self._spare, self._on_left_out = spare or {}, on_left_out
        self._tally = tally
        self._counters = counters

    async def events(self, waiting: Callable[[str], None]) -> AsyncIterator[ReplyEvent]:
        """The events until the reply ends; ``waiting`` is told why the request is sent again.

        Raises:
            LocalspecError: the server refuses, breaks off, or sends something other than a reply.
        """
        if self._seen:  # in a thread, as `_once`: they may be large
            self._body["messages"] = await asyncio.to_thread(message_parts, self._seen)
        before = await read_counters(self._connection) if self._counters else None
        tally = self._tally
        try:
            async for event in self._once(waiting):
                yield event
        except UsageError as refusal:
            left_out = [] if tally.begun else self._refused(str(refusal))
            if not left_out:
                raise
            yield Notice(
                f"the server refuses {', '.join(left_out)}: left out, as only our default asked "
                "for it"
            )
            async for event in self._once(waiting):
                yield event
        if before is not None and tally.reported is None:
            tally.reported = difference(before, await read_counters(self._connection))
        if tally.held_back:
            yield Notice(
                "this reply arrived in one piece: the server, or a proxy before it, holds streams "
                "back"
            )
        yield tally.finished(tally.finish_reason or "stop")

    async def _once(self, waiting: Callable[[str], None]) -> AsyncIterator[ReplyEvent]:
        body = await asyncio.to_thread(lambda: json.dumps(self._body).encode("ascii"))
        async with self._connection.stream(self._path, body, waiting) as response:
            async for event in self._read(response):
                yield event

    def _refused(self, said: str) -> list[str]:
        """Fields that a refusal names and that nobody asked for, now left out of the request."""
        named = [
            theirs
            for theirs in self._spare
            if theirs in self._body and re.search(rf"\b{re.escape(theirs)}\b", said)
        ]
        for theirs in named:
            del self._body[theirs]
        self._on_left_out({self._spare[theirs] for theirs in named})
        return named

    def interrupted(self) -> Finished:
        """The end of an interrupted reply, with the part that had arrived."""
        return self._tally.finished("interrupt")

    async def _read(self, response: httpx2.Response) -> AsyncIterator[ReplyEvent]:
        connection, tally = self._connection, self._tally
        address, key = connection.address, connection.key
        lines = Lines(response, connection)
        kind = content_type(response)
        if kind == _JSON:  # a server, or a proxy, that does not stream
            for event in self._taken(await whole(lines)):
                yield event
            return
        if kind not in {_STREAM, ""}:
            raise RemoteError(
                f"{address} answers with {excerpt(kind, key)}, not with a reply; is the address "
                "right? it usually ends in /v1"
            )
        done = False
        async for data in server_sent(lines):
            if data.strip() == DONE:
                done = True
                break
            for event in self._taken(data):
                yield event
        if not done and tally.finish_reason is None:
            raise broken_off(address, begun=tally.begun)

    def _taken(self, data: bytes) -> Iterator[ReplyEvent]:
        """The events of a piece of the answer.

        Raises:
            LocalspecError: the server refuses, breaks off, or sent something other than a reply.
        """
        address, tally = self._connection.address, self._tally
        chunk = parse(data, address, self._connection.key, begun=tally.begun)
        yield from tally.take(chunk)
        if chunk.broken:
            raise broken_off(address, begun=tally.begun)
        if chunk.filtered:
            yield Notice("a filter of the server ended this reply: it may not be whole")
