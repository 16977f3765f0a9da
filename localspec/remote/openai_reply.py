"""Fetches a reply over OpenAI's interface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from localspec.core.events import Finished, Notice, ReplyEvent
from localspec.errors import RemoteError
from localspec.remote import metrics
from localspec.remote.chunk import DONE, parse
from localspec.remote.connection import Connection
from localspec.remote.faults import excerpt
from localspec.remote.lines import Lines, server_sent
from localspec.remote.metrics import Counters
from localspec.remote.reported import Reported
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
        counters: bool = False,
    ) -> None:
        """With ``counters`` the server's ``/metrics`` tells what the reply does not."""
        self._connection, self._path = connection, path
        self._body = json.dumps(body).encode("ascii")
        self._tally = tally
        self._counters = counters

    async def events(self, waiting: Callable[[str], None]) -> AsyncIterator[ReplyEvent]:
        """The events until the reply ends; ``waiting`` is told why the request is sent again.

        Raises:
            LocalspecError: the server refuses, breaks off, or sends something other than a reply.
        """
        before = await metrics.read(self._connection) if self._counters else None
        async with self._connection.stream(self._path, self._body, waiting) as response:
            async for event in self._read(response):
                yield event
        tally = self._tally
        if before is not None and tally.reported is None:
            tally.reported = _difference(before, await metrics.read(self._connection))
        if tally.held_back:
            yield Notice(
                "this reply arrived in one piece: the server, or a proxy before it, holds streams "
                "back"
            )
        yield tally.finished(tally.finish_reason or "stop")

    def interrupted(self) -> Finished:
        """The end of an interrupted reply, with the part that had arrived."""
        return self._tally.finished("interrupt")

    async def _read(self, response: httpx2.Response) -> AsyncIterator[ReplyEvent]:
        connection, tally = self._connection, self._tally
        address, key, patience = connection.address, connection.key, connection.patience
        lines = Lines(response, address, patience.first, patience.later)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == _JSON:  # a server, or a proxy, that does not stream
            whole = b"\n".join([line async for line in lines])
            for event in tally.take(parse(whole, address, key)):
                yield event
            return
        if kind not in {_STREAM, ""}:
            raise RemoteError(
                f"{address} answers with {excerpt(kind)}, not with a reply; is the address right? "
                "it usually ends in /v1"
            )
        done = False
        async for data in server_sent(lines):
            if data.strip() == DONE:
                done = True
                break
            for event in tally.take(parse(data, address, key)):
                yield event
        if not done and tally.finish_reason is None:
            kept = "what had arrived is kept" if tally.begun else "nothing of it had arrived"
            raise RemoteError(f"{address} broke the reply off in the middle; {kept}")


def _difference(before: Counters, after: Counters | None) -> Reported | None:
    """The difference of two looks at the server's counters, if it is due to this reply alone."""
    if after is None or not (before.quiet and after.quiet):
        return None
    finished = _grown(before.finished, after.finished)
    rounds, drafted, accepted = (
        _grown(getattr(before, name), getattr(after, name))
        for name in ("rounds", "drafted", "accepted")
    )
    if finished not in {None, 1} or drafted is None or accepted is None or accepted > drafted:
        return None
    return Reported(drafted, accepted, rounds)


def _grown(before: float | None, after: float | None) -> int | None:
    return None if before is None or after is None or after < before else int(after - before)


__all__ = ["OpenAIReply"]
