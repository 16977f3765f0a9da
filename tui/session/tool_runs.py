"""Runs the calls of a reply: asks for permission, then calls side by side, and keeps results."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from localspec.chats.calls import CallState, SavedCall
from localspec.core.errors import LocalspecError
from localspec.tools.permission import MOST_ROUNDS, Answer, Permissions, refusal, result_size
from localspec.tools.toolbox import Toolbox
from localspec.tools.values import OfferedTool
from tui.session.conversation import ChatTurn
from tui.session.notifications import CallsChanged, NoticeAdded, Notification
from tui.session.open_chat import OpenChat, Question


@dataclass(slots=True, eq=False)
class ToolRun:
    """The calls of one reply, from the end of its text to the last result."""

    chat: OpenChat
    turn: ChatTurn
    _toolbox: Toolbox
    _permissions: Permissions
    _tell: Callable[[OpenChat, Notification], None]
    _allow_always: Callable[[OfferedTool], None]
    """Writes a tool into the settings."""
    _attention: Callable[[OpenChat, OfferedTool], None]
    """Called where a tool asks."""
    _task: asyncio.Task[None] | None = None
    stopped: bool = False
    _unsaved: bool = False

    def stop(self) -> None:
        """End every call now; what has ended is kept."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()

    async def make(self, context: int) -> bool:
        """Run the calls; whether the model is to read their results. ``context`` is its size in
        tokens, which bounds the results.
        """
        self._task = asyncio.create_task(self._run(context))
        try:
            await asyncio.wait((self._task,))
        except asyncio.CancelledError:  # the chat or the program ends
            self._task.cancel()
            self._end_rest("stopped")
            raise
        if self.stopped or self._task.cancelled():
            self._end_rest("stopped")
            return False
        self._task.result()
        rounds = self._rounds()
        if rounds >= MOST_ROUNDS:
            self._tell(
                self.chat,
                NoticeAdded(f"{rounds} replies with calls in a row; F9 lets the model go on"),
            )
            return False
        return True

    async def _run(self, context: int) -> None:
        calls = self.turn.calls
        allowed: dict[int, OfferedTool] = {}
        for at, call in enumerate(calls):
            tool = self._toolbox.find(call.name)
            if (why := self._why_not(at, call, tool)) or tool is None:
                self._set(at, dataclasses.replace(call, state="failed", result=f"Error: {why}"))
            elif reason := await self._permission(tool, call):
                allowed[at] = tool
                self._set(at, dataclasses.replace(call, allowed=reason))
            else:
                self._set(at, dataclasses.replace(call, state="refused"))
        most = result_size(context, len(allowed))
        async with asyncio.TaskGroup() as tasks:
            for at, tool in allowed.items():
                tasks.create_task(self._call(at, tool, most))

    def _why_not(self, at: int, call: SavedCall, tool: OfferedTool | None) -> str:
        earlier = [c for turn in self._branch()[1:] for c in turn.calls if c.result is not None]
        why = refusal(call, at, [*earlier, *self.turn.calls[:at]])
        return why or (f"there is no tool {call.name} any more" if tool is None else "")

    async def _permission(self, tool: OfferedTool, call: SavedCall) -> str:
        """Why the tool may run; "" where the user does not allow it."""
        async with self.chat.asking:
            if reason := self._permissions.why(tool):
                return reason
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self.chat.question = Question(self.turn, tool, call.arguments, future)
            self._tell(self.chat, CallsChanged(self.turn))
            self._attention(self.chat, tool)
            try:
                answer = await future
            finally:
                self.chat.question = None
                self._tell(self.chat, CallsChanged(self.turn))
            self._permissions.take(tool, answer)
        if answer == "always":
            try:
                await asyncio.to_thread(self._allow_always, tool)
            except LocalspecError as error:
                self._tell(self.chat, NoticeAdded(f"it is not saved: {error}", error=True))
        return "" if answer == "no" else answer

    async def _call(self, at: int, tool: OfferedTool, most: int) -> None:
        call = self.turn.calls[at]
        self._set(at, dataclasses.replace(call, state="running"))
        result = await self._toolbox.run(tool, call.arguments, most)
        done = dataclasses.replace(
            call,
            state="failed" if result.failed else "done",
            result=result.text,
            seconds=round(result.seconds, 3),
        )
        self._set(at, done)

    def _set(self, at: int, call: SavedCall) -> None:
        self.turn.calls[at] = call
        if not self._unsaved:  # many change in one instant, and to save takes its time
            self._unsaved = True
            asyncio.get_running_loop().call_soon(self._save)
        self._tell(self.chat, CallsChanged(self.turn))

    def _save(self) -> None:
        if self._unsaved:
            self._unsaved = False
            self.chat.recorder.save_calls(self.turn)

    def _end_rest(self, state: CallState) -> None:
        for at, call in enumerate(self.turn.calls):
            if call.state in ("waiting", "running"):
                self._set(at, dataclasses.replace(call, state=state))
        self._save()  # not in a later turn of the loop: a chat that is closed is left in this one

    def _branch(self) -> list[ChatTurn]:
        """The replies with calls since the last question, this one included, newest first."""
        found = []
        for turn in reversed(self.chat.conversation.branch_to(self.turn)):
            if turn.role != "assistant":
                break
            found.append(turn)
        return found

    def _rounds(self) -> int:
        return len(self._branch())
