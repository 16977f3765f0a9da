"""One server of tools, seen from the program that calls them: a process, its state, its calls."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from typing import Any

from localspec.core.errors import ToolError
from localspec.core.files import defects
from localspec.core.processes import children
from localspec.core.safe_text import safe_line
from localspec.tools.servers_file import ServerSpec
from localspec.tools.values import (
    OfferedTool,
    ServerState,
    ToolResult,
    offered,
    quoted,
)

_LARGEST_LINE = 16 << 20
"""Bytes of a message from the process."""
_LONGEST_NAME = 200
"""Characters of the name of a prompt, or of the address of a resource."""
_GRACE = 3.0
"""Seconds for the process to end by itself."""
_PATIENCE = 10.0
"""Seconds beyond its own limit for the process to tell that a call takes too long."""
_AT_ONCE = 8
"""Calls of one server at a time; more wait."""


def _named(listed: Mapping[str, str]) -> dict[str, str]:
    """What prompts or resources are, by name; without those whose name cannot be shown and typed as
    it is.
    """
    return {
        name: safe_line(text)
        for name, text in listed.items()
        if len(name) <= _LONGEST_NAME and name == safe_line(name)
    }


class ServerProcess:
    """Starts the process of one server when it is first needed, and again where it has died."""

    def __init__(self, spec: ServerSpec, changed: Callable[[], None] = lambda: None) -> None:
        """``changed`` is called when the state has changed."""
        self.spec = spec
        self.state = ServerState("off" if spec.disabled else "waiting")
        self._changed = changed
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._ended = 0
        """How often it was closed or switched off."""
        self._told = asyncio.Event()
        """Set when the server is ready, has failed, or was ended."""
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Start it, and wait until it is ready or has failed; the state says which."""
        async with self._lock:
            if self._process is not None and self.state.phase in ("ready", "starting"):
                await self._told.wait()
                return
            await self._end()
            self._told.clear()
            self._become(ServerState("starting"))
            try:
                await self._start()
            except OSError as error:
                self._fail(f"its process cannot be started: {defects.why(error)}")
            await self._told.wait()
            if self.state.phase not in ("ready", "failed"):  # switched off, or closed, meanwhile
                await self._end()

    async def _start(self) -> None:
        command, environment = children.command("localspec.tools.host")
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            limit=_LARGEST_LINE,
            start_new_session=True,
        )
        self._send(dataclasses.asdict(self.spec))
        self._reading = asyncio.create_task(self._read(process))

    async def call(self, tool: str, arguments: Mapping[str, Any], most: int) -> ToolResult:
        """Call a tool; its result has at most ``most`` characters. Cancelled, it ends the call.

        Raises:
            ToolError: the server cannot be started, died, or did not answer in time.
        """
        answer = await self._ask({"call": tool, "arguments": dict(arguments)})
        text = quoted(str(answer["text"]), most)
        return ToolResult(text, bool(answer["failed"]), float(answer["seconds"]))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of one of its prompts.

        Raises:
            ToolError: as `call`.
        """
        return str((await self._ask({"prompt": name, "arguments": dict(arguments)}))["text"])

    async def resource(self, uri: str) -> str:
        """The text of one of its resources.

        Raises:
            ToolError: as `call`.
        """
        return str((await self._ask({"resource": uri}))["text"])

    async def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        ended = self._ended
        async with self._room:  # the time of a call begins when it does
            if self._ended != ended:
                raise ToolError(f"the server {self.spec.name} was ended")
            if self.state.phase != "ready":
                await self.open()
            if self.state.phase != "ready":
                why = self.state.error or "it is switched off"
                raise ToolError(f"the server {self.spec.name} does not run: {why}")
            return await self._answer(command)

    async def _answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        try:
            self._send({**command, "id": number})
            async with asyncio.timeout(self.spec.seconds + _PATIENCE):
                answer = await future
        except TimeoutError:
            self._send({"cancel": number})
            raise ToolError(
                f"the server {self.spec.name} gave no answer within {self.spec.seconds:g} seconds"
            ) from None
        except asyncio.CancelledError:
            self._send({"cancel": number})
            raise
        finally:
            self._calls.pop(number, None)
        if "error" in answer:
            raise ToolError(safe_line(str(answer["error"])))
        return answer

    async def close(self) -> None:
        """End the process and all that it started."""
        self._ended += 1
        await self._end()
        if self.state.phase != "off":
            self._become(ServerState("waiting"))

    async def switch(self, *, on: bool) -> None:
        """Start the server, or end it and offer nothing of it."""
        if on:
            self.state = ServerState("waiting") if self.state.phase == "off" else self.state
            await self.open()
        else:
            self._ended += 1
            self._become(ServerState("off"))  # first: who waits for its start sees why that ended
            await self._end()

    def kill(self) -> None:
        """End the process at once, where nobody waits for it any more."""
        process = self._process
        if process is not None and process.returncode is None:
            _kill_group(process)

    async def _end(self) -> None:
        self._told.set()  # nobody waits for a start that was ended
        process, self._process = self._process, None
        reading, self._reading = self._reading, None
        if process is None:
            return
        if reading is not None:
            reading.cancel()
        if process.stdin is not None:
            process.stdin.close()
        await children.ended(process, _GRACE, functools.partial(_kill_group, process))
        self._fail_calls("it was ended")

    def _send(self, message: Mapping[str, Any]) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        over = ""
        try:
            while line := await process.stdout.readline():
                message = json.loads(line)
                over = message.get("over", over)
                self._take(message)
        except json.JSONDecodeError:
            over = ""  # it was ended while it wrote
        except ValueError:
            over = f"it sent more than {_LARGEST_LINE >> 20} MB at once"
        self.kill()
        self._fail(safe_line(over) or "its process ended")

    def _take(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            about = message["ready"]
            tools, left_out = self._offers(about["tools"])
            prompts, resources = _named(about["prompts"]), _named(about["resources"])
            self._become(
                ServerState(
                    "ready",
                    about=safe_line(f"{about['name']} {about['version']}".strip()),
                    tools=tools,
                    left_out=left_out,
                    prompts=tuple(prompts),
                    resources=tuple(resources),
                    known={**prompts, **resources},
                )
            )
            self._told.set()
        elif "tools" in message:
            tools, left_out = self._offers(message["tools"])
            self._become(dataclasses.replace(self.state, tools=tools, left_out=left_out))
            return
        if message.get("closed"):  # the next call starts it again
            error = safe_line(str(message["error"]))
            self._become(dataclasses.replace(self.state, phase="failed", error=error))
        if (future := self._calls.get(message.get("id", 0))) is not None and not future.done():
            future.set_result(dict(message))

    def _offers(self, tools: list[Any]) -> tuple[tuple[OfferedTool, ...], tuple[str, ...]]:
        found: dict[str, OfferedTool] = {}
        left_out = []
        for tool in tools:
            try:
                one = offered(self.spec.name, tool)
            except ToolError as error:
                left_out.append(str(error))
                continue
            if one.name in found:
                left_out.append(f"{one.tool} is there twice")
                continue
            found[one.name] = one
        return tuple(found.values()), tuple(left_out)

    def _fail(self, why: str) -> None:
        # Its tools stay offered: the next call of one starts it again.
        if self.state.phase != "off":
            self._become(dataclasses.replace(self.state, phase="failed", error=why))
        self._told.set()
        self._fail_calls(why)

    def _fail_calls(self, why: str) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_result({"error": f"the server {self.spec.name} failed: {why}"})

    def _become(self, state: ServerState) -> None:
        self.state = state
        self._changed()


def _kill_group(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
