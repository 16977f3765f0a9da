"""The tools of this interface: which there are, what may run, and the calls that run now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError
from localspec.core.in_thread import in_thread
from localspec.tools import servers_file
from tui.session.notifications import NoticeAdded, Notification
from tui.session.open_chat import OpenChat

if TYPE_CHECKING:
    from localspec.tools.permission import Answer
    from localspec.tools.server import ServerProcess
    from localspec.tools.toolbox import RequestTools, Toolbox
    from localspec.tools.values import OfferedTool
    from tui.session.conversation import ChatTurn
    from tui.session.tool_runs import ToolRun

_STARTING = 20.0
"""Seconds that a reply waits for servers that are being started."""


class ToolShelf:
    """Shared by all open chats; each has permissions of its own. Without servers and without a
    folder nothing is imported.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        save: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``allowed`` are the tools that the settings allow; ``save`` adds one to them."""
        self._always = set(allowed)
        self._save = save
        self.toolbox: Toolbox | None = None
        self.starting = False
        """Whether replies wait for servers."""
        self.error: LocalspecError | None = None
        """Why mcp.json cannot be used."""
        self.on_question: Callable[[OpenChat, OfferedTool], None] = lambda *_: None
        """Called where a tool asks to run."""
        self.only: tuple[str, ...] | None = None
        """The tools of servers that are offered, as `permission.matches` takes them; None: all."""
        self.begin_with: Path | None = None
        """A folder to open at the start."""
        self.runs: list[ToolRun] = []
        self._request: RequestTools | None = None
        self._changed: Callable[[], None] = lambda: None

    def allow(self, names: Iterable[str]) -> None:
        """Allow tools for this session alone."""
        self._always.update(names)

    async def start(
        self, changed: Callable[[], None], tell: Callable[[Notification], None]
    ) -> None:
        """Start the servers of mcp.json, where there are any."""
        self._changed = changed
        if self.begin_with is not None:
            try:
                await self.open_folder(self.begin_with)
            except LocalspecError as error:
                tell(NoticeAdded(str(error), error=True))
        try:
            if programs := servers_file.offer_once():
                tell(NoticeAdded(f"{programs} have servers of tools; /mcp import adds them here"))
            specs = servers_file.servers()
        except LocalspecError as error:
            self.error = error
            tell(NoticeAdded(str(error), error=True))
            return
        if not specs:
            return
        self.starting = True
        try:
            box = self._opened()
            box.use(specs)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STARTING):
                    await asyncio.shield(asyncio.ensure_future(box.open()))
            for server in box.servers:
                if server.state.phase == "failed":
                    why = server.state.error
                    tell(NoticeAdded(f"the server {server.spec.name} does not run: {why}"))
        finally:
            self.starting = False
            changed()

    def _opened(self) -> Toolbox:
        if self.toolbox is None:
            from localspec.tools.toolbox import Toolbox

            self.toolbox = Toolbox(changed=self._changed)
        return self.toolbox

    async def open_folder(self, path: Path) -> Path:
        """Let the model read below a folder.

        Raises:
            LocalspecError: it cannot be read.
        """
        from localspec.tools.folder import Folder

        folder = await in_thread(lambda _: Folder(path))
        box = self._opened()
        box.folder = folder
        await box.judge(folder.tools)
        return folder.path

    def close_folder(self) -> bool:
        """Read nothing any more; whether a folder was open."""
        box = self.toolbox
        if box is None or box.folder is None:
            return False
        box.folder = None
        return True

    @property
    def folder(self) -> Path | None:
        """The folder that is open."""
        box = self.toolbox
        return None if box is None or box.folder is None else box.folder.path

    def request(self) -> RequestTools | None:
        """What the next reply may call; None where there is nothing."""
        if self.toolbox is None:
            return None
        offered = [tool for tool in self.toolbox.offered if self.offers(tool)]
        if not offered:
            return None
        from localspec.tools.toolbox import RequestTools

        if self._request is None or list(self._request.tools) != offered:
            self._request = RequestTools.of(offered)  # 0.1 s for all that may be offered
        return self._request

    def offers(self, tool: OfferedTool) -> bool:
        """Whether the setting ``tools``, or that of a preset, leaves a tool in."""
        from localspec.tools.permission import matches

        if self.only is None or not tool.server:  # a folder is open since the user opened it
            return True
        return any(matches(pattern, tool) for pattern in self.only)

    async def server(self, name: str, *, on: bool) -> ServerProcess:
        """Switch a server on or off.

        Raises:
            LocalspecError: there is none of that name.
        """
        box = self._opened()
        server = box.named(name)
        await server.switch(on=on)
        await box.judge(server.state.tools)
        return server

    def of(self, chat: OpenChat) -> list[ToolRun]:
        """The calls that run in a chat."""
        return [run for run in self.runs if run.chat is chat]

    def stop(self, chat: OpenChat | None = None) -> bool:
        """Stop the calls of one chat, or all; whether there were any."""
        found = [run for run in self.runs if chat in (None, run.chat)]
        for run in found:
            run.stop()
        return bool(found)

    async def run(
        self,
        chat: OpenChat,
        turn: ChatTurn,
        context: int,
        tell: Callable[[OpenChat, Notification], None],
    ) -> bool:
        """Run the calls of a reply; whether the model is to read their results."""
        from localspec.tools.permission import Permissions
        from tui.session.tool_runs import ToolRun

        if chat.permissions is None:
            chat.permissions = Permissions(self._always)
        run = ToolRun(
            chat,
            turn,
            self._opened(),
            chat.permissions,
            tell,
            self._allow_always,
            self.on_question,
        )
        self.runs.append(run)
        try:
            return await run.make(context)
        finally:
            self.runs.remove(run)

    def _allow_always(self, tool: OfferedTool) -> None:
        self._always.add(tool.place)
        self._save(tool.place)

    def answer(self, chat: OpenChat, answer: Answer) -> str:
        """Answer the question of a chat; why that did not count, or ""."""
        if chat.question is None:
            return "no tool asks to run"
        if not chat.question.reply(answer):
            return "answer again in a moment"
        return ""

    async def close(self) -> None:
        """End all servers."""
        if self.toolbox is not None:
            await self.toolbox.close()


def how_to_leave_out(tools: Iterable[OfferedTool]) -> str:
    """What the user types so that the model is not told of some of these tools."""
    theirs = {bool(tool.server) for tool in tools}
    if theirs == {False}:
        return "/folder off leaves them out"
    if theirs == {True}:
        return "/mcp off NAME leaves some out"
    return "/folder off and /mcp off NAME leave some out"
