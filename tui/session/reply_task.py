"""The one task that uses the engine: it makes the pending replies of all open chats in turn."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from localspec.core.events import Finished, Notice, Reading, ReplyEvent, Round, Token
from localspec.errors import LocalspecError
from tui.session.comparison import ReplyComparison
from tui.session.conversation import ChatTurn, ReplyRecipe
from tui.session.engine_slot import EngineSlot
from tui.session.notifications import (
    NoticeAdded,
    Notification,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
)
from tui.session.open_chat import OpenChat, PendingReply
from tui.session.open_chats import OpenChats
from tui.session.ports import Phase, Settings


class ReplyTask:
    """Opens the engine and makes replies; writes into chats and their meters as tokens arrive."""

    def __init__(
        self,
        engine: EngineSlot,
        chats: OpenChats,
        settings: Settings,
        notify: Callable[[Notification], None],
        activity: Callable[[], None],
    ) -> None:
        """``notify`` receives events to show; ``activity`` makes the screen refresh."""
        self._engine, self._chats = engine, chats
        self._settings = settings
        self._notify = notify
        self._activity = activity
        self.chat: OpenChat | None = None
        """The chat whose reply is being made."""
        self.reading: Reading | None = None
        """Progress of the prefill, until the first token."""
        self.comparing: ReplyComparison | None = None
        """The comparison to make next, or the one that is being made."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Check again for pending pending."""
        self._wake.set()

    async def run(self) -> None:
        """Open the engine and make replies until cancelled."""
        while True:
            phase, chat = self._engine.phase, self._chats.next_to_answer
            if phase is Phase.LOADING:
                await self._open()
            elif phase is Phase.READY and self.comparing is not None:
                await self._compare(self.comparing)
            elif phase is Phase.READY and chat is not None:
                await self._answer(chat, chat.take())
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _open(self) -> None:
        engine = self._engine
        self._activity()
        if await engine.open() and engine.info is not None:
            self._chats.model_opened(engine.info, engine.options)

    def _tell(self, chat: OpenChat, notification: Notification) -> None:
        """Notify the screen, or keep the notification until the chat is shown."""
        if chat is self._chats.current:
            self._notify(notification)
        elif isinstance(notification, ReplyFailed | NoticeAdded):
            chat.missed.append(notification)
        self._activity()

    async def _answer(self, chat: OpenChat, pending: PendingReply) -> None:
        conversation = chat.conversation
        question = None if pending.text is None else conversation.say(pending.text)
        messages = conversation.messages()
        reply = pending.unfinished or conversation.answer()
        begun, start = reply.text, len(reply.tokens)
        recipe, reply.recipe = reply.recipe, None
        conversation.written_by(reply, chat.recorder.info.model)
        save_end = chat.recorder.begin_reply(conversation, question, reply)
        chat.meter.start()
        self.chat, chat.growing = chat, reply
        self._engine.phase = Phase.REPLYING
        self._tell(chat, ReplyStarted(question, reply))
        settings = self._settings
        try:
            request = settings.request(messages)
            async for event in self._engine.client.submit(request):
                whole = event
                if isinstance(event, Finished) and begun:
                    text = begun + event.reply.text
                    whole = Finished(dataclasses.replace(event.reply, text=text))
                self._take(chat, reply, whole)
                if isinstance(event, Finished):
                    reply.recipe = ReplyRecipe(
                        messages,
                        settings.sampling,
                        settings.max_tokens,
                        event.reply,
                        start,
                        len(begun),
                        request.grammar,
                    )
        except LocalspecError as error:
            reply.end = "failed"
            if pending.unfinished is not None and reply.text == begun:
                reply.end, reply.recipe = pending.ended, recipe
            if self._engine.phase is Phase.REPLYING:  # else `EngineDied` was sent already
                self._tell(chat, ReplyFailed(error))
        finally:
            self.reading = self.chat = chat.growing = None
            if self._engine.phase is Phase.REPLYING:
                self._engine.phase = Phase.READY
            save_end()
        self._tell(chat, ReplyEnded(reply))

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

    def _take(self, chat: OpenChat, reply: ChatTurn, event: ReplyEvent) -> None:
        match event:
            case Token():
                self.reading = None
                chat.meter.token()
                reply.add(event)
            case Round():
                chat.meter.add(event)
            case Reading():
                self.reading = chat.meter.reading = event
            case Notice(text):
                self._tell(chat, NoticeAdded(text))
            case Finished(whole):
                reply.finish(whole)
                chat.meter.finish(whole.stats)
