"""The task that uses the engine: it makes the pending replies of all open chats, as many at once as
the engine computes together.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chats.calls import calls_as_text
from localspec.core.errors import LocalspecError
from localspec.core.events import Message
from tui.render.text import without_thinking
from tui.session.comparison import ReplyComparison
from tui.session.conversation import ChatTurn
from tui.session.meter import Meter
from tui.session.notifications import (
    ConversationChanged,
    NoticeAdded,
    Notification,
    ReplyEnded,
    ReplyFailed,
)
from tui.session.open_chat import OpenChat
from tui.session.open_chats import OpenChats
from tui.session.pending import PendingReply
from tui.session.running_reply import RunningReply
from tui.session.session_engine import Phase, SessionEngine
from tui.session.settings import Settings
from tui.session.titles import Titles
from tui.session.tool_shelf import ToolShelf, how_to_leave_out

if TYPE_CHECKING:
    from localspec.tools.toolbox import RequestTools


LONG = 10.0
"""Seconds of work after which its end is told to a user who looks elsewhere."""

_NO_SUMMARY = "no summary: the model called a tool instead, which was not run; /compact asks again"


class ReplyTask:
    """Opens the engine and makes replies; writes into chats and their meters as tokens arrive."""

    def __init__(
        self,
        engine: SessionEngine,
        chats: OpenChats,
        settings: Settings,
        notify: Callable[[Notification], None],
        activity: Callable[[], None],
        tools: ToolShelf,
    ) -> None:
        """``notify`` receives events to show; ``activity`` makes the screen refresh."""
        self._tools = tools
        self._engine, self._chats = engine, chats
        self._settings = settings
        self._notify = notify
        self._activity = activity
        self.running: list[RunningReply] = []
        self._told_size = False
        """Whether it was said that the tools take much of the context."""
        self._counted = ("", "")
        """The tools that were counted last, and the model."""
        self.comparing: ReplyComparison | None = None
        """The comparison to make next, or the one that is being made."""
        self._wake = asyncio.Event()
        self.titles = Titles(engine, chats, settings, tools, self._tell, activity)
        self.on_long_end: Callable[[OpenChat], None] = lambda _: None
        """Called where the work on a question ends that took longer than `LONG`."""

    def wake(self) -> None:
        """Check again for pending replies."""
        self._wake.set()

    def of(self, chat: OpenChat) -> list[RunningReply]:
        """The replies that are being made in that chat."""
        return [reply for reply in self.running if reply.chat is chat]

    def look(self, chat: OpenChat) -> None:
        """Show the figures of the reply on the branch that is shown, while others are made."""
        made = {reply.turn.id: reply.meter for reply in self.of(chat)}
        last = chat.conversation.last
        if last is not None and last.id in made:
            chat.meter = made[last.id]
        elif any(meter is chat.meter for meter in made.values()):
            chat.meter = _like(chat.meter)

    @property
    def chats(self) -> list[OpenChat]:
        """The chats in which replies are being made."""
        return list(dict.fromkeys(reply.chat for reply in self.running))

    def stop(self, chat: OpenChat | None = None) -> None:
        """Stop the replies of one chat, or all and the comparison."""
        for reply in self.running:
            if chat in (None, reply.chat):
                reply.stop()
        self._tools.stop(chat)
        if self.comparing is not None:
            self.comparing.stop()

    async def run(self) -> None:
        """Open the engine and make replies until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.titles.run())
            while True:
                self._wake.clear()
                if self._engine.phase is Phase.LOADING:
                    if not self.running:  # those of the engine before end by themselves
                        await self._open()
                        continue
                elif self.titles.busy and (self.comparing or self._next):
                    await self.titles.end()
                    continue
                elif self.comparing is not None:  # its speeds are measured alone
                    if self._engine.phase is Phase.READY:
                        await self._compare(self.comparing)
                        continue
                elif (chat := self._next) is not None:
                    self._start(chat, chat.pending.take(), tasks)
                    continue
                await self._wake.wait()

    @property
    def _next(self) -> OpenChat | None:
        """A chat whose pending reply begins now; None where all wait."""
        info = self._engine.info
        free = info is not None and len(self.running) < info.parallel
        ready = self._engine.phase in (Phase.READY, Phase.REPLYING) and not self._tools.starting
        return self._chats.next_to_answer if free and ready else None

    async def _open(self) -> None:
        engine = self._engine
        self._activity()
        if await engine.open() and engine.info is not None:
            self._chats.model_opened(engine.info, engine.options, engine.client.server)

    def _tell(self, chat: OpenChat, notification: Notification) -> None:
        """Notify the screen, or keep the notification until the chat is shown."""
        if chat is self._chats.current:
            self._notify(notification)
        elif isinstance(notification, ReplyFailed | NoticeAdded):
            chat.missed.append(notification)
        self._activity()

    def _start(self, chat: OpenChat, pending: PendingReply, tasks: asyncio.TaskGroup) -> None:
        """Begin a reply."""
        if chat.busy_since is None:
            chat.busy_since = time.monotonic()
        question, reply = chat.begin(pending)
        messages = chat.conversation.messages_to(reply)
        meter = chat.meter if reply is chat.conversation.last else _like(chat.meter)
        chat.conversation.written_by(reply, chat.recorder.info.model, self._draft)
        meter.start()
        chat.growing.append(reply)
        self._engine.phase = Phase.REPLYING
        tools, refused = None, None
        try:
            tools = self._offered(messages)
        except LocalspecError as error:
            refused = error
        if self._engine.client.server:
            messages = calls_as_text(messages)
        running = RunningReply(
            *(chat, reply, meter, pending, question),
            *(self._settings, self._engine, tools, refused, self._tell),
        )
        self.running.append(running)
        tasks.create_task(self._made(running, messages))
        if tools is not None and not self._told_size:
            tasks.create_task(self._tell_size(chat, tools))

    async def _tell_size(self, chat: OpenChat, tools: RequestTools) -> None:
        """Say once that the descriptions of tools fill much of the context."""
        info = self._engine.info
        counted = tools.text, info.target if info is not None else ""
        if counted == self._counted:
            return
        self._counted = counted
        tokens = None
        with contextlib.suppress(LocalspecError):  # the reply says what is wrong with them
            tokens = await self._engine.count_tools(tools)
        if tokens is None or info is None or self._told_size:
            return
        if tokens > info.context // 3:
            self._told_size = True
            line = f"the tools take {tokens:,} of the {info.context:,} tokens of the context"
            self._tell(chat, NoticeAdded(f"{line}; {how_to_leave_out(tools.tools)}"))

    def _offered(self, messages: tuple[Message, ...]) -> RequestTools | None:
        """The tools that the next reply may call: none where it follows another grammar, continues
        a reply, or is made elsewhere.
        """
        continued = bool(messages) and messages[-1].role == "assistant"
        if self._settings.grammar is not None or continued or self._engine.client.server:
            return None
        return self._tools.request()

    @property
    def _draft(self) -> str | None:
        """Name of the draft model that helps with the next reply."""
        info = self._engine.info
        if info is None or not info.draft or not self._settings.draft:
            return None
        return Path(info.draft).stem

    async def _made(self, running: RunningReply, messages: tuple[Message, ...]) -> None:
        chat, turn = running.chat, running.turn
        acts = False
        try:
            await running.make(messages)
            whole = turn.end == "stop" and not running.stopped
            acts = whole and turn.calls_wait and not running.pending.summary
        finally:
            self.running.remove(running)
            if not acts:
                chat.growing.remove(turn)
            if not self.running and self._engine.phase is Phase.REPLYING:
                self._engine.phase = Phase.READY
            running.save()
            self.wake()
        self._tell(chat, ReplyEnded(turn))
        if acts:
            await self._act(running)
        elif running.pending.summary:
            self._compact(chat, turn)
        self._chats.leave_closed()
        self._end_work(chat)
        self.titles.reply_ended(chat)

    def _compact(self, chat: OpenChat, summary: ChatTurn) -> None:
        """Go on from a summary, unless it was stopped or failed, or is none. Tools are offered for
        it as before, so that the prompt begins as the chat that was read; none runs.
        """
        if summary.end == "stop" and summary.calls:
            self._tell(chat, NoticeAdded(_NO_SUMMARY, error=True))
        elif summary.end == "stop" and summary.said.strip():
            if chat.begin_from(summary, without_thinking(summary.said)):
                self._tell(chat, ConversationChanged())
            self.wake()

    def _end_work(self, chat: OpenChat) -> None:
        """Where nothing more is to be done in a chat, tell of it if it took long."""
        if chat.growing or chat.waits or chat.busy_since is None:
            return
        took, chat.busy_since = time.monotonic() - chat.busy_since, None
        if took > LONG:
            self.on_long_end(chat)

    async def _act(self, reply: RunningReply) -> None:
        """Run the calls of a reply, and have the model read their results."""
        chat, turn = reply.chat, reply.turn
        info = self._engine.info
        try:
            if await self._tools.run(chat, turn, info.context if info else 0, self._tell):
                chat.go_on(turn)
        finally:
            chat.growing.remove(turn)
            reply.save()
            self._activity()

    async def _compare(self, comparison: ReplyComparison) -> None:
        self._engine.phase = Phase.REPLYING
        self._activity()
        try:
            await comparison.run(self._engine.client)
        except LocalspecError as error:
            comparison.failure = error
        finally:
            self.comparing = None
            comparison.over = True
            if self._engine.phase is Phase.REPLYING:
                self._engine.phase = Phase.READY
        self._activity()


def _like(meter: Meter) -> Meter:
    """Another one for the same model."""
    another = Meter()
    another.copy_model(meter)
    return another
