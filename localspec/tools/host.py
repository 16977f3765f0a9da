"""The process that speaks with one server of tools; it alone imports ``mcp``.

Messages on stdin and stdout are JSON objects, one a line. The first one on stdin is the server;
then come ``{"id", "call", "arguments"}``, ``{"id", "prompt", "arguments"}``, ``{"id", "resource"}``
and ``{"cancel"}``. Answers are ``{"ready": …}``, ``{"tools": […]}`` after a change, ``{"id",
"text", "failed"}`` or ``{"id", "error", "closed"}``, and ``{"over"}`` with the reason as the last
one.

What a server sends is parsed here, within limits of size and memory, so that it can stop nothing
but this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from typing import Any

from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import CONNECTION_CLOSED

from localspec.core.processes.bounded_child import address_space, limit_memory
from localspec.tools import transports
from localspec.tools.values import LARGEST_SCHEMA, MOST_TOOLS, as_text, prompt_text, resource_text

_MEMORY = 768 << 20
"""Bytes of address space beyond what this process has when the server runs."""
_MOST_PAGES = 20
_MOST_LISTED = 200
"""Prompts, and resources, that are listed."""
_MOMENT = 2.0


class Host:
    """One connection: lists what the server offers, and passes calls on."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._ending = transports.Ending()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until stdin ends or the connection does."""
        reason = ""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(self._spec["starting"]):
                    client = await stack.enter_async_context(self._client())
                    limit_memory(None if (space := address_space()) is None else space + _MEMORY)
                    about = await self._about(client)
                _say({"ready": about})
                await self._serve(client)
        except* TimeoutError:
            reason = f"it did not tell its tools within {self._spec['starting']:g} seconds"
        except* OSError as errors:
            reason = _of_system(_first(errors))
        except* MemoryError:
            reason = f"what it sent took more than {_MEMORY >> 20} MB of memory"
        except* Exception as errors:  # noqa: BLE001 - whatever a server makes of the client
            reason = _reason(_first(errors))
        said = self._ending.reason or reason or "the connection ended"
        words = self._ending.words
        _say({"over": f"{said}: {words}" if words and words not in said else said})

    def _client(self) -> Client:
        spec = self._spec
        if spec["url"]:
            streams = transports.address(spec["url"], spec["headers"], spec["seconds"])
        else:
            streams = transports.program(
                spec["command"], spec["args"], spec["env"], spec["cwd"], self._ending
            )
        return Client(streams, message_handler=self._notified, cache=None, mode="auto")

    async def _notified(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._changed.set()

    async def _about(self, client: Client) -> dict[str, Any]:
        able, info = client.server_capabilities, client.server_info
        prompts, resources = {}, {}
        if able.prompts is not None:
            async for one in _pages(client.list_prompts, "prompts", _MOST_LISTED):
                prompts[one.name] = _short(one.description or one.title or "")
        if able.resources is not None:
            async for one in _pages(client.list_resources, "resources", _MOST_LISTED):
                resources[str(one.uri)] = _short(one.description or one.name or "")
        return {
            "name": _short(info.name if info else ""),
            "version": _short(info.version if info else ""),
            "tools": await self._tools(client) if able.tools is not None else [],
            "prompts": prompts,
            "resources": resources,
        }

    async def _tools(self, client: Client) -> list[dict[str, Any]]:
        found = []
        async for one in _pages(client.list_tools, "tools", MOST_TOOLS):
            schema = one.input_schema
            text = json.dumps(schema)
            found.append(
                {
                    "name": one.name,
                    "description": (one.description or one.title or "")[:4096],
                    "schema": schema if len(text) <= LARGEST_SCHEMA else len(text),
                }
            )
        return found

    async def _serve(self, client: Client) -> None:
        reader = asyncio.StreamReader(limit=transports.LARGEST_MESSAGE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        commands = asyncio.create_task(self._commands(client, reader))
        changes = asyncio.create_task(self._changes(client))
        hears = asyncio.create_task(self._hear(client))
        gone = asyncio.create_task(self._ending.known.wait())
        done, waiting = await asyncio.wait(
            (commands, changes, gone), return_when=asyncio.FIRST_COMPLETED
        )
        for task in (*waiting, hears, *self._tasks.values()):
            task.cancel()
        for task in done:
            task.result()

    async def _hear(self, client: Client) -> None:
        """Ask to be told of other tools, as the protocol wants it since 2026-07-28; servers of
        earlier versions tell unasked.
        """
        if client.server_capabilities.tools is None:
            return
        while True:
            with contextlib.suppress(SubscriptionLost):
                try:
                    async with client.listen(tools_list_changed=True) as told:
                        self._changed.set()  # what it told nobody until now
                        async for _ in told:
                            self._changed.set()
                except (ListenNotSupportedError, MCPError):
                    pass
                return
            self._changed.set()  # what was missed
            await asyncio.sleep(_MOMENT)

    async def _changes(self, client: Client) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(0.5)  # a server that changes all the time is asked twice a second
            self._changed.clear()
            with contextlib.suppress(MCPError):
                _say({"tools": await self._tools(client)})

    async def _commands(self, client: Client, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            command = json.loads(line)
            if "cancel" in command:
                if (task := self._tasks.get(command["cancel"])) is not None:
                    task.cancel()
                continue
            self._begin(client, command)

    def _begin(self, client: Client, command: dict[str, Any]) -> None:
        number, task = command["id"], asyncio.create_task(self._answer(client, command))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, client: Client, command: dict[str, Any]) -> None:
        number, begun = command["id"], time.monotonic()
        try:
            async with asyncio.timeout(self._spec["seconds"]):
                text, failed = await self._done(client, command)
        except TimeoutError:
            _say({"id": number, "error": f"no answer within {self._spec['seconds']:g} seconds"})
        except MCPError as error:
            closed = error.code == CONNECTION_CLOSED
            reason = await self._why_closed() if closed else ""
            _say({"id": number, "error": reason or _short(error.message), "closed": closed})
        except (Exception, MemoryError) as error:  # noqa: BLE001 - one call, not the server
            _say({"id": number, "error": _reason(error)})
        else:
            seconds = time.monotonic() - begun
            _say({"id": number, "text": text, "failed": failed, "seconds": seconds})

    async def _why_closed(self) -> str:
        """Why the connection ended; the client notices it a moment before its transport does."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.known.wait(), _MOMENT)
        return f"the server failed: {self._ending.reason}" if self._ending.reason else ""

    async def _done(self, client: Client, command: dict[str, Any]) -> tuple[str, bool]:
        if "call" in command:
            result = await client.call_tool(command["call"], command["arguments"])
            return as_text(result), result.is_error
        if "prompt" in command:
            found = await client.get_prompt(command["prompt"], command["arguments"])
            return prompt_text(found), False
        return resource_text(await client.read_resource(command["resource"])), False


async def _pages(listing: Any, part: str, most: int) -> Any:
    """The items of a list that comes in pages."""
    cursor, count = None, 0
    for _ in range(_MOST_PAGES):
        page = await listing(cursor=cursor)
        for one in getattr(page, part):
            count += 1
            if count > most:
                return
            yield one
        cursor = page.next_cursor
        if not cursor:
            return


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return _short(text)


def _of_system(error: BaseException) -> str:
    """An error of the system, with the program or file that it is about."""
    said, name = getattr(error, "strerror", None), getattr(error, "filename", None)
    return str(error) if said is None else f"{name}: {said}" if name else str(said)


def _first_line() -> bytes:
    """The first line of stdin, and nothing of what follows it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _short(text: str) -> str:
    return text[:300]


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve one server; afterwards nothing of it runs any more."""
    logging.disable()
    spec = json.loads(_first_line())
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(Host(spec).run())
    finally:
        sys.stdout.flush()
        if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
