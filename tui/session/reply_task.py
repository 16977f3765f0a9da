"""The one task that asks the engine: what the open chats wait for, reply by reply."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from localspec.core.events import Finished, Notice, Reading, ReplyEvent, Round, Token
from localspec.errors import LocalspecError
from tui.session.comparison import Comparison
from tui.session.conversation import Made, Turn
from tui.session.engine_slot import Engines
from tui.session.notifications import Asked, Ended, Failed, Happening, Told
from tui.session.open_chat import OpenChat, Work
from tui.session.open_chats import OpenChats
from tui.session.ports import Phase, Settings


class Answering:
    """Opens the engine and answers; it writes into chats and their meters as tokens come."""

    def __init__(
        self,
        engines: Engines,
        chats: OpenChats,
        settings: Settings,
        happen: Callable[[Happening], None],
        activity: Callable[[], None],
    ) -> None:
        """``happen`` takes what the screen is to show, ``activity`` makes it look again."""
        self._engines, self._chats = engines, chats
        self._settings = settings
        self._happen = happen
        self._activity = activity
        self.chat: OpenChat | None = None
        """The one that is answered now."""
        self.reading: Reading | None = None
        """How far its prompt is read, until the reply begins."""
        self.comparing: Comparison | None = None
        """The comparison to make next, or the one that is being made."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    async def run(self) -> None:
        """Work for as long as the interface lives."""
        while True:
            phase, chat = self._engines.phase, self._chats.next_to_answer
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
        engines = self._engines
        self._activity()
        if await engines.open() and engines.info is not None:
            self._chats.opened(engines.info, engines.options)

    def _tell(self, chat: OpenChat, happening: Happening) -> None:
        """Something happens in a chat: the screen shows it, or it waits until one looks there."""
        if chat is self._chats.current:
            self._happen(happening)
        elif isinstance(happening, Failed | Told):
            chat.missed.append(happening)
        self._activity()

    async def _answer(self, chat: OpenChat, work: Work) -> None:
        conversation = chat.conversation
        question = None if work.text is None else conversation.say(work.text)
        messages = conversation.messages()
        reply = work.unfinished or conversation.answer()
        said, start = reply.text, len(reply.tokens)
        made, reply.made = reply.made, None
        conversation.written_by(reply, chat.kept.info.model)
        ended = chat.kept.follow(conversation, question, reply)
        chat.meter.start()
        self.chat, chat.speaking = chat, reply
        self._engines.phase = Phase.REPLYING
        self._tell(chat, Asked(question, reply))
        settings = self._settings
        try:
            request = settings.request(messages)
            async for event in self._engines.engine.submit(request):
                whole = event
                if isinstance(event, Finished) and said:
                    text = said + event.reply.text
                    whole = Finished(dataclasses.replace(event.reply, text=text))
                self._take(chat, reply, whole)
                if isinstance(event, Finished):
                    reply.made = Made(
                        messages,
                        settings.sampling,
                        settings.max_tokens,
                        event.reply,
                        start,
                        len(said),
                    )
        except LocalspecError as error:
            reply.end = "failed"
            if work.unfinished is not None and reply.text == said:
                reply.end, reply.made = work.ended, made
            if self._engines.phase is Phase.REPLYING:  # else its death has been told
                self._tell(chat, Failed(error))
        finally:
            self.reading = self.chat = chat.speaking = None
            if self._engines.phase is Phase.REPLYING:
                self._engines.phase = Phase.READY
            ended()
        self._tell(chat, Ended(reply))

    async def _compare(self, comparison: Comparison) -> None:
        self._engines.phase = Phase.REPLYING
        self._activity()
        try:
            await comparison.run(self._engines.engine)
        except LocalspecError as error:
            comparison.failure = error
        finally:
            self.comparing = None
            comparison.over = True
            if self._engines.phase is Phase.REPLYING:
                self._engines.phase = Phase.READY
        self._activity()

    def _take(self, chat: OpenChat, reply: Turn, event: ReplyEvent) -> None:
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
                self._tell(chat, Told(text))
            case Finished(whole):
                reply.finish(whole)
                chat.meter.finish(whole.stats)
