"""Titles of chats by the model: asked for with /title, or made when a chat has been idle.

The request is the chat itself with one more message, so nothing of it is read again, and what the
chat said stays in the KV cache for its next question. It leaves nothing in the conversation and
nothing that is drafted from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from localspec.chats.calls import calls_as_text
from localspec.chats.pictures import named
from localspec.chats.values import title_of
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Finished, Message, ModelInfo, ReplyFormat
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.engine.port import ReplyHandle
from tui.render.text import without_thinking
from tui.session.notifications import NoticeAdded, Notification
from tui.session.open_chat import OpenChat
from tui.session.open_chats import OpenChats
from tui.session.session_engine import Phase, SessionEngine
from tui.session.settings import Settings
from tui.session.tool_shelf import ToolShelf

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK = (
    "Write a title for our conversation so far: two to six words, in its language, that say what "
    "it is about. Write the title alone."
)
IDLE = 4.0
"""Seconds without a reply and without a key before a title is made."""
SMALLEST = 1_000_000_000
"""Bytes of a target's file from which `auto` asks for titles. Models of about a billion parameters
and fewer often answer such a request instead of following it."""
_SHORTEST, _LONGEST = 3, 60
"""Characters."""
_TOKENS = 24
_FORM = GrammarSpec("regex", r"[^\s\p{C}\p{P}\p{S}][^\n\r\t<>{}|`*#\"]{2,59}")
"""One line without marks: no thinking, no call and no Markdown."""


class Titles:
    """Makes one title at a time while nothing else is computed."""

    def __init__(
        self,
        engine: SessionEngine,
        chats: OpenChats,
        settings: Settings,
        tools: ToolShelf,
        tell: Callable[[OpenChat, Notification], None],
        changed: Callable[[], None],
    ) -> None:
        """``tell`` says in a chat how a title that was asked for ended; ``changed`` has the screen
        show another title.
        """
        self._changed = changed
        self._engine, self._chats = engine, chats
        self._settings, self._tools = settings, tools
        self._tell = tell
        self.when = "auto"
        """The setting: auto, on or off."""
        self._due: list[OpenChat] = []
        """Chats whose reply has ended."""
        self._asked: OpenChat | None = None
        """The chat that the user wants a title for now."""
        self._done: WeakSet[OpenChat] = WeakSet()
        """Chats for which the model has tried."""
        self._touched = 0.0
        self._handle: ReplyHandle | None = None
        self._wake, self._rests = asyncio.Event(), asyncio.Event()
        self._rests.set()

    def touch(self) -> None:
        """The user did something: a title waits again."""
        self._touched = time.monotonic()

    def reply_ended(self, chat: OpenChat) -> None:
        """A reply has ended: its chat may get a title once it is idle."""
        self.touch()
        if chat not in self._due:
            self._due.append(chat)
        self._wake.set()

    def ask(self, chat: OpenChat) -> None:
        """Make a title for a chat now, whatever it is called."""
        self._asked = chat
        self._wake.set()

    async def end(self) -> None:
        """Stop the title that is being made, and return when the engine has been left."""
        if self._handle is not None:
            self._handle.interrupt()
        await self._rests.wait()

    @property
    def busy(self) -> bool:
        """Whether a title is being made."""
        return not self._rests.is_set()

    async def run(self) -> None:
        """Make titles until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._engine.phase is not Phase.READY:
                continue  # woken when the next reply ends
            if (chat := self._asked) is not None:
                self._asked = None
                await self._make(chat, asked=True)
                self._wake.set()
            elif self._due and not await self._disturbed():
                chat = self._due.pop()
                if self._wants(chat):
                    await self._make(chat, asked=False)
                self._wake.set()

    async def _disturbed(self) -> bool:
        """Wait until nothing has happened for a while; whether something did."""
        left = self._touched + IDLE - time.monotonic()
        if left <= 0:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.set()
        return True

    def _wants(self, chat: OpenChat) -> bool:
        """Whether a chat gets a title by itself: it has a reply, and is called by its first
        question still.
        """
        turns, info = chat.conversation.turns, chat.recorder.info
        open_ = chat in self._chats.all and not (chat.growing or chat.waits)
        first = next((turn.text for turn in turns if turn.role == "user"), "")
        called = info.title == title_of(named(first)) and not info.named
        answered = bool(turns) and turns[-1].end == "stop" and not turns[-1].awaits_reply
        return self._able and open_ and called and answered and chat not in self._done

    @property
    def _able(self) -> bool:
        """Whether the setting and the model are for titles that nobody asked for."""
        info: ModelInfo | None = self._engine.info
        if self.when != "auto" or info is None:
            return self.when == "on"
        return not self._engine.client.server and info.target_bytes >= SMALLEST

    async def _make(self, chat: OpenChat, *, asked: bool) -> None:
        self._rests.clear()
        before = chat.recorder.info
        try:
            text, whole = await self._written(chat)
        except LocalspecError as error:
            if asked:
                self._tell(chat, NoticeAdded(f"no title: {error}"))
            return
        finally:
            if self._handle is not None:
                self._handle.close()
            self._handle = None
            self._rests.set()
        if not whole:
            if asked:
                self._tell(chat, NoticeAdded("no title: a question came first"))
            return
        self._done.add(chat)
        title = _cut(text)
        if chat.recorder.info.title != before.title or chat not in self._chats.all:
            return  # the user gave one meanwhile, or closed it
        if title and asked:
            chat.recorder.rename(title)
        elif title:
            chat.recorder.propose_title(title)
            self._changed()
        if asked:
            said = f"this chat is called {title}" if title else "the model wrote no title"
            self._tell(chat, NoticeAdded(said))

    async def _written(self, chat: OpenChat) -> tuple[str, bool]:
        """What the model writes, and whether it was not interrupted."""
        request = self._request(chat)
        try:
            return await self._made(request)
        except UsageError:
            if request.thinking is None:
                raise
        return await self._made(replace(request, thinking=None))  # its template has no switch

    async def _made(self, request: ReplyRequest) -> tuple[str, bool]:
        thinks = False
        handle = self._handle = self._engine.client.reply(request)
        async for event in handle:
            if isinstance(event, ReplyFormat):
                thinks = event.thinks
            if isinstance(event, Finished):
                reply = event.reply
                cut = thinks and reply.finish_reason == "length"  # inside of its thoughts
                return "" if cut else reply.text, reply.finish_reason != "interrupt"
        return "", False

    def _request(self, chat: OpenChat) -> ReplyRequest:
        """The chat and one more message; its beginning is that of the chat's next request."""
        messages: Sequence[Message] = chat.conversation.messages()
        here = not self._engine.client.server
        tools = self._tools.request() if here and self._settings.grammar is None else None
        if not here:
            messages = calls_as_text(messages)
        return ReplyRequest(
            messages=(*messages, Message("user", ASK)),
            sampling=Sampling(temperature=0),
            max_tokens=_TOKENS,
            draft=self._settings.draft,
            grammar=_FORM if here else None,
            thinking=False if here else None,
            tools=None if tools is None else tools.text,
            markers=here,
            drop_oldest=False,
        )


def _cut(text: str) -> str:
    """A title of what the model wrote; "" where it is none."""
    said = without_thinking(text).strip().strip("\"'“”«»*#`").strip()
    line = title_of(said)[:_LONGEST].rstrip(" .:;,")
    letters = sum(c.isalpha() for c in line)
    return line if letters >= _SHORTEST - 1 and line != "untitled" else ""
