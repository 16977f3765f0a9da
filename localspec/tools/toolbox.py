"""All tools that a chat may call, and how a call finds the one that it names."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from localspec.core import json_text
from localspec.core.errors import LocalspecError, QueueFullError, ToolError, UsageError
from localspec.core.grammar_spec import MAX_TEXT, GrammarSpec
from localspec.core.in_thread import in_thread
from localspec.core.safe_text import safe_line
from localspec.tools.folder import Folder
from localspec.tools.server import ServerProcess
from localspec.tools.servers_file import ServerSpec
from localspec.tools.values import LARGEST_RESULT, OfferedTool, ToolResult, quoted

MOST_OFFERED = 256
"""Tools of a request."""
_ADDED = 128
"""Most characters that the grammar of a request adds to the name and the schema of a tool, and most
that it has besides."""
_FULL = "the tools before it are as many as a request may have; /mcp off NAME makes room"
_MOST_TRIED = 1024
"""Schemas of one server that are tried out, about eight times the tools that it may have."""
_TRIES = 3
"""Trials of a tool's schema whose process is ended from outside."""


class Toolbox:
    """Servers, and reading below a folder where the user has opened one."""

    def __init__(
        self,
        servers: Iterable[ServerSpec] = (),
        folder: Folder | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called when what is offered has changed."""
        self.folder = folder
        self._changed = changed
        self._fit: dict[str, str] = {}
        """By the digest of a tool: why calls of it cannot be followed, or ""."""
        self._tried = Counter[str]()
        """Schemas that were tried out, by their server."""
        self._judging = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None
        """Tries out what servers offer since they run."""
        self.servers = list[ServerProcess]()
        self.use(servers)

    def use(self, servers: Iterable[ServerSpec]) -> None:
        """Have these servers, none of which runs yet."""
        self.servers = [ServerProcess(spec, self._server_changed) for spec in servers]

    async def open(self) -> None:
        """Start all servers, side by side; each tells its state."""
        wanted = [server for server in self.servers if server.state.phase != "off"]
        await asyncio.gather(*(server.open() for server in wanted))
        await self.judge()

    async def judge(self, tools: Sequence[OfferedTool] | None = None) -> None:
        """Try out the schemas of ``tools``, or all, that were not seen yet, in other processes.
        Those that servers tell meanwhile are tried out later, since a server may tell others all
        the time; those that nobody offers any more are not.
        """
        for tool in self._fresh() if tools is None else tools:
            async with self._judging:  # one after the other, whoever waits for them
                if self._awaits(tool) and tool in self._all():
                    await self._try_out(tool)
        self._changed()

    async def _try_out(self, tool: OfferedTool) -> None:
        self._tried[tool.server] += 1
        self._fit[_key(tool)] = await in_thread(lambda _: _why_unfit(tool))

    def _fresh(self) -> list[OfferedTool]:
        return [tool for tool in self._all() if self._awaits(tool)]

    def _awaits(self, tool: OfferedTool) -> bool:
        return self._tried[tool.server] < _MOST_TRIED and _key(tool) not in self._fit

    def _server_changed(self) -> None:
        """A server tells another state, and other tools perhaps, which it may do at any time."""
        self._changed()
        if self._fresh() and (self._later is None or self._later.done()):
            self._later = asyncio.get_running_loop().create_task(self._judge_later())

    async def _judge_later(self) -> None:
        while self._fresh():
            await self.judge()

    def _all(self) -> list[OfferedTool]:
        own = list(self.folder.tools) if self.folder is not None else []
        return own + [tool for server in self.servers for tool in server.state.tools]

    @property
    def offered(self) -> tuple[OfferedTool, ...]:
        """The tools that the model is told of, as many as one request may have; each name once: the
        first one has it.
        """
        found: dict[str, OfferedTool] = {}
        size = _ADDED
        for tool in self._all():
            text = _text(tool)
            if tool.name in found or self._fit.get(_digest(text)) != "":
                continue
            size += len(text) + _ADDED
            if size > MAX_TEXT or len(found) == MOST_OFFERED:
                break
            found[tool.name] = tool
        return tuple(found.values())

    def left_out(self, server: ServerProcess) -> list[str]:
        """A line for each tool of a server that is not offered."""
        shown = self.offered
        names = {tool.name for tool in shown}
        lines = list(server.state.left_out)
        for tool in server.state.tools:
            if tool in shown:
                continue
            if self._awaits(tool):
                why = "not looked at yet"
            else:
                many = "its server has told too many others"
                taken = "another tool has its name" if tool.name in names else _FULL
                why = self._fit.get(_key(tool), many) or taken
            lines.append(f"{tool.tool}: {why}")
        return lines

    def find(self, name: str) -> OfferedTool | None:
        """The tool that a call names; None where there is none, or not any more."""
        return next((tool for tool in self.offered if tool.name == name), None)

    async def run(self, tool: OfferedTool, arguments: str, most: int) -> ToolResult:
        """`call` with arguments as the model wrote them."""
        try:
            given = arguments_of(arguments)
        except ToolError as error:
            return ToolResult(quoted(f"Error: {error}", most), failed=True)
        return await self.call(tool, given, most)

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], most: int = LARGEST_RESULT
    ) -> ToolResult:
        """Call a tool; the result has at most ``most`` characters. An error is a result too: the
        model may do something else.
        """
        begun = time.monotonic()
        try:
            if tool.server:
                return await self._server(tool.server).call(tool.tool, arguments, most)
            folder = self._opened()
            text = await in_thread(lambda _: folder.call(tool.tool, arguments))
            return ToolResult(quoted(text, most), False, time.monotonic() - begun)
        except LocalspecError as error:
            return ToolResult(quoted(f"Error: {error}", most), True, time.monotonic() - begun)

    def _opened(self) -> Folder:
        if self.folder is None:
            raise ToolError("no folder is open any more")
        return self.folder

    def _server(self, name: str) -> ServerProcess:
        for one in self.servers:
            if one.spec.name == name and one.state.phase != "off":
                return one
        raise ToolError(f"the server {name} is not there any more")

    def named(self, name: str) -> ServerProcess:
        """The server of that name.

        Raises:
            UsageError: there is none.
        """
        known = {one.spec.name: one for one in self.servers}
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"there is no server {name!r}; there are: {names}")
        return known[name]

    async def close(self) -> None:
        """End all servers."""
        if self._later is not None:
            self._later.cancel()
        await asyncio.gather(*(server.close() for server in self.servers))


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call.

    Raises:
        ToolError: they are not a JSON object, or a server would get others than were shown.
    """
    try:
        found = json_text.read_plain(text or "{}")
    except UnicodeEncodeError:
        raise ToolError("the arguments hold half a character") from None
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments are not JSON: {safe_line(str(error))[:200]}") from None
    if not isinstance(found, dict):
        raise ToolError("the arguments are not a JSON object")
    return found


@dataclass(frozen=True, slots=True)
class RequestTools:
    """The tools of one request, as a `ReplyRequest` takes them."""

    tools: tuple[OfferedTool, ...]
    text: str
    """`ReplyRequest.tools`."""
    grammar: GrammarSpec
    """Makes calls well formed."""

    @classmethod
    def of(cls, tools: Sequence[OfferedTool]) -> RequestTools:
        """A request that may call these tools, of which there is at least one."""
        from localspec.grammar import tools as grammar_tools  # slow to import

        given = [tool.as_openai for tool in tools]
        return cls(tuple(tools), json.dumps(given), grammar_tools.spec(given))


def _why_unfit(tool: OfferedTool) -> str:
    """Why calls of a tool cannot be followed by a grammar, which would stop those of all others;
    "" where they can. Blocks; a process with limits computes.
    """
    from localspec.grammar import tools  # slow to import
    from localspec.grammar.checking import Checker
    from localspec.grammar.tool_families import FAMILIES

    why = ""
    for _ in range(_TRIES):
        try:
            Checker().checked(tools.spec([tool.as_openai]), next(iter(FAMILIES)))
        except QueueFullError as error:  # its process was ended from outside
            why = str(error)
        except LocalspecError as error:
            return str(error)
        else:
            return ""
    return why


def _key(tool: OfferedTool) -> str:
    return _digest(_text(tool))


def _text(tool: OfferedTool) -> str:
    return json.dumps([tool.name, tool.schema], sort_keys=True)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
