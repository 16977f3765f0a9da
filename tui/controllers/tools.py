"""Servers, the folder that is open, and the answer to a tool that asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError
from localspec.core.files import paths
from localspec.core.safe_text import safe_line
from localspec.tools import servers_file
from tui.controllers.chat_context import ChatContext

if TYPE_CHECKING:
    from localspec.tools.permission import Answer
    from localspec.tools.server import ServerProcess
    from localspec.tools.toolbox import Toolbox
    from tui.session.tool_shelf import ToolShelf

_NAMES: dict[Answer, str] = {
    "once": "once",
    "chat": "in this chat",
    "always": "always",
    "no": "no",
}


class ToolController:
    """The commands and keys of tools."""

    def __init__(self, context: ChatContext) -> None:
        self._session, self._feedback = context.session, context.feedback
        self.keys = " · ".join(
            f"{context.key(f'chat.allow_{answer}')} {name}" for answer, name in _NAMES.items()
        )
        """How to answer, in words."""

    @property
    def asked(self) -> tuple[str, str, str] | None:
        """What a tool asks: where, if that is not on the screen, its place, and its arguments."""
        chat = self._session.chat
        if (question := chat.question) is None:
            return None
        branch = chat.conversation.elsewhere(question.turn)
        where = "" if branch is None else f"Branch {branch}: "
        return where, question.tool.place, question.arguments

    def answer(self, number: int) -> None:
        """Answer the tool that asks."""
        self.allow([*_NAMES][number])

    def allow(self, word: str) -> None:
        """Answer the tool that asks, by a word."""
        found = next((answer for answer in _NAMES if answer == (word or "once")), None)
        if found is None:
            self._feedback.hint("/allow takes once, chat or always; /deny refuses")
        elif why_not := self._session.tools.answer(self._session.chat, found):
            self._feedback.hint(why_not)

    async def folder(self, text: str) -> None:
        """Open a folder for reading, close it, or say which is open."""
        shelf = self._session.tools
        if not text:
            where = shelf.folder
            told = f"the model may read below {where}" if where else "no folder is open"
            await self._feedback.note(f"{told}; /folder PATH opens one, /folder off closes it")
        elif text == "off":
            closed = shelf.close_folder()
            self._feedback.hint("the folder is closed" if closed else "no folder is open")
        else:
            path = await self._feedback.result(shelf.open_folder(paths.expand(text)))
            if path is not None:
                await self._feedback.note(
                    f"the model may list, read and search files below {path}; /folder off ends that"
                )

    async def mcp(self, text: str) -> None:
        """List servers, switch one, show its tools, or take servers over from other programs."""
        word, _, name = text.partition(" ")
        if word == "import":
            await self._take_over()
        elif word in ("on", "off") and name:
            server = await self._feedback.result(
                self._session.tools.server(name.strip(), on=word == "on")
            )
            if server is not None:
                await self._feedback.note(f"{name.strip()}: {_standing(server)}")
        else:
            await self._list(text)

    async def _take_over(self) -> None:
        taken = await self._feedback.result(asyncio.to_thread(servers_file.take_over))
        if taken is None:
            return
        added, refused = taken
        lines = [safe_line(line) for line in refused]
        if added:
            names = safe_line(", ".join(added))
            lines.append(f"added to {servers_file.path()}: {names}; the next start runs them")
        else:
            lines.append("no servers of other programs were found that are not in mcp.json")
        await self._feedback.note(*lines)

    async def _list(self, name: str) -> None:
        box = self._session.tools.toolbox
        if self._session.tools.error is not None:
            await self._feedback.note(str(self._session.tools.error), error=True)
            return
        if box is None or not box.servers:
            found = ", ".join(servers_file.elsewhere())
            offer = f"; /mcp import takes over those of {found}" if found else ""
            await self._feedback.note(
                f"no servers: {servers_file.path()} names them (docs/tools-in-chat.md){offer}"
            )
            return
        chosen = [server for server in box.servers if not name or server.spec.name == name]
        if not chosen:
            try:
                box.named(name)
            except LocalspecError as error:
                await self._feedback.note(str(error), error=True)
            return
        rows = [
            row
            for server in chosen
            for row in _rows(box, server, self._session.tools, full=bool(name))
        ]
        await self._feedback.show_list("Servers: /mcp NAME, /mcp on NAME, /mcp off NAME", rows)


def _standing(server: ServerProcess) -> str:
    state = server.state
    match state.phase:
        case "ready":
            tools = "1 tool" if len(state.tools) == 1 else f"{len(state.tools)} tools"
            return f"ready, {tools}"
        case "failed":
            return f"does not run: {state.error}"
        case "waiting":
            return "not started yet"
        case "starting":
            return "is being started"
    return "off"


def _rows(
    box: Toolbox, server: ServerProcess, shelf: ToolShelf, *, full: bool
) -> list[tuple[str, str]]:
    state = server.state
    about = f" ({state.about})" if state.about else ""
    rows = [(server.spec.name, f"{_standing(server)}{about}, {safe_line(server.spec.where)}")]
    offered = box.offered
    for tool in state.tools:
        if tool in offered and not shelf.offers(tool):
            rows.append((f"  {tool.tool}", "not offered: the setting tools leaves it out"))
        elif tool in offered:
            first = tool.description.strip().split("\n")[0]
            rows.append((f"  {tool.tool}", tool.description if full else first[:100]))
    rows += [("  left out", line) for line in box.left_out(server)]
    rows += [("  prompt", f"{name}  {state.known[name]}") for name in state.prompts]
    rows += [("  resource", f"{safe_line(name)}  {state.known[name]}") for name in state.resources]
    return rows
