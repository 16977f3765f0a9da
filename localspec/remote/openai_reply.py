"""Fetches a reply over OpenAI's interface."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx2

from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import Finished, Message, Notice, ReplyEvent
from localspec.remote import metrics, picture_parts
from localspec.remote.chunk import DONE, parse
from localspec.remote.connection import Connection
from localspec.remote.faults import excerpt
from localspec.remote.lines import Lines, server_sent, whole
from localspec.remote.tally import Tally

_STREAM, _JSON = "text/event-stream", "application/json"


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
            self._body["messages"] = await asyncio.to_thread(picture_parts.messages, self._seen)
        before = await metrics.read(self._connection) if self._counters else None
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
            tally.reported = metrics.difference(before, await metrics.read(self._connection))
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
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == _JSON:  # a server, or a proxy, that does not stream
            for event in tally.take(parse(await whole(lines), address, key, begun=tally.begun)):
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
            for event in tally.take(parse(data, address, key, begun=tally.begun)):
                yield event
        if not done and tally.finish_reason is None:
            kept = "what had arrived is kept" if tally.begun else "nothing of it had arrived"
            raise RemoteError(f"{address} broke the reply off in the middle; {kept}")
