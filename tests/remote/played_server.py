"""A server that plays answers byte for byte, faults included."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field


def http(status=200, body=b"", kind="application/json", **headers):
    """A whole answer."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
"""The beginning of a streamed answer, which ends with its connection."""


def event(data):
    """One event; ``data`` is JSON or bytes."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def said(text, **more):
    """An event with text."""
    return event({"object": "chat.completion.chunk", **more} | _choice({"content": text}, None))


def ended(reason="stop", **more):
    """The event that ends a reply."""
    return event({"object": "chat.completion.chunk", **more} | _choice({}, reason))


def _choice(delta, reason):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


DONE = event(b"[DONE]")
HANG = object()
"""In an answer: nothing follows until the client leaves."""
RESET = object()
"""In an answer: the connection is reset."""


def models(*names, owner="", **more):
    """The list of models."""
    entries = [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]
    return http(200, {"object": "list", "data": entries})


@dataclass
class Asked:
    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class PlayedServer:
    """Answers by path; a list of answers is played one after the other, its last one for ever.

    An answer is bytes, a list of bytes, HANG and RESET, or None: the connection is closed.
    """

    routes: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client left an answer with HANG."""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def asked_for(self, path):
        return [asked for asked in self.asked if asked.path == path]

    async def _serve(self, reader, writer):
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                answer = self.routes.get(asked.path, http(404, {"error": {"message": "no"}}))
                if isinstance(answer, tuple):
                    number = len(self.asked_for(asked.path)) - 1
                    answer = answer[min(number, len(answer) - 1)]
                if answer is None or not await self._play(answer, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _play(self, answer, reader, writer):
        """Whether the connection goes on."""
        parts = answer if isinstance(answer, list) else [answer]
        for part in parts:
            if part is HANG:
                await reader.read()
                self.left.set()
                return False
            if part is RESET:
                writer.transport.abort()
                return False
            writer.write(part)
            await writer.drain()
        return b"Content-Length" in parts[0]


async def _read(reader):
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    headers = {name.lower(): value for name, value in headers.items()}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, body)
