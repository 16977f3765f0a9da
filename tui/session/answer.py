"""One reply of the engine, written into its turn and meter as its tokens arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.errors import ContextError, LocalspecError
from localspec.core.events import (
    LEFT_OUT,
    Finished,
    Message,
    Notice,
    Reading,
    ReplyEvent,
    ReplyFormat,
    Round,
    Token,
)
from localspec.engine.port import ReplyHandle
from tui.session.conversation import ChatTurn, ReplyRecipe
from tui.session.engine_slot import EngineSlot, Phase
from tui.session.meter import Meter
from tui.session.notifications import (
    ConversationChanged,
    NoticeAdded,
    Notification,
    ReplyFailed,
    ReplyStarted,
)
from tui.session.open_chat import OpenChat
from tui.session.pending import PendingReply
from tui.session.settings import Settings

if TYPE_CHECKING:
    from localspec.tools.toolbox import RequestTools
    from localspec.tools.written_calls import WrittenCalls

_TAKEN_OUT = "the message is not part of the chat any more; Up brings it back to be changed"


@dataclass(slots=True, eq=False)
class RunningReply:
    """A reply that is being made."""

    chat: OpenChat
    turn: ChatTurn
    meter: Meter
    """The chat's own; a reply on a branch that is not shown has another."""
    handle: ReplyHandle | None = None
    """None until the request is sent."""
    stopped: bool = False

    def stop(self) -> None:
        """End it now; what was emitted is kept."""
        self.stopped = True
        if self.handle is not None:
            self.handle.interrupt()


class Answer:
    """Makes one reply: saves it as it grows, and leaves the recipe to make it again."""

    def __init__(
        self,
        running: RunningReply,
        pending: PendingReply,
        question: ChatTurn | None,
        settings: Settings,
        engine: EngineSlot,
        tools: RequestTools | None,
        tell: Callable[[OpenChat, Notification], None],
    ) -> None:
        """``question`` is new in the conversation, ``tools`` are those that the reply may call;
        ``tell`` passes notifications on to the chat.
        """
        self.running = running
        self.pending = pending
        self._question = question
        self._settings = settings
        self._engine = engine
        self._tools = tools
        self._calls: WrittenCalls | None = None
        self._tell = tell
        chat, reply = running.chat, running.turn
        self._begun, self._start = reply.text, len(reply.tokens)
        self._recipe, reply.recipe = reply.recipe, None
        self.save = chat.recorder.begin_reply(chat.conversation, question, reply)
        """Saves the end of the reply."""
        if reply is not chat.conversation.last:  # the branch that is shown stays the saved one
            chat.recorder.save_view(chat.conversation)

    async def make(self, messages: tuple[Message, ...]) -> None:
        """Ask the engine, and take what comes until the reply ends or fails."""
        running, settings = self.running, self._settings
        chat, reply = running.chat, running.turn
        self._tell(chat, ReplyStarted(self._question, reply))
        try:
            request = settings.request(messages, self.pending.variant, self._tools)
            if self._tools is not None:
                from localspec.tools.written_calls import WrittenCalls  # only with tools

                self._calls = WrittenCalls(self._tools)
            handle = running.handle = self._engine.client.reply(request)
            if running.stopped:
                handle.interrupt()
            async for event in handle:
                self._take(event)
                if isinstance(event, Finished):
                    reply.recipe = ReplyRecipe(
                        messages,
                        settings.sampling,
                        settings.max_tokens,
                        event.reply,
                        self._start,
                        len(self._begun),
                        request.grammar,
                        request.thinking,
                        request.tools,
                    )
        except LocalspecError as error:
            reply.end = "failed"
            if self.pending.unfinished is not None and reply.text == self._begun:
                reply.end, reply.recipe = self.pending.ended, self._recipe
            if self._engine.phase is Phase.REPLYING:  # else `EngineDied` was sent already
                taken_out = isinstance(error, ContextError) and self._take_out()
                self._tell(chat, ReplyFailed(error))
                if taken_out:
                    self._tell(chat, NoticeAdded(_TAKEN_OUT))
        finally:
            if running.handle is not None:
                running.handle.close()

    def _take_out(self) -> bool:
        """Take a question that no context holds out of the branch that is shown: with it every
        later message would fail, or push all others out of the context. False where it is not new.
        """
        chat, question = self.running.chat, self._question
        if question is None or chat.conversation.turns[-2:] != [question, self.running.turn]:
            return False
        chat.leave_out(question)
        self._tell(chat, ConversationChanged())
        return True

    def _take(self, event: ReplyEvent) -> None:
        reply, meter = self.running.turn, self.running.meter
        match event:
            case Token():
                meter.token()
                reply.add(event)
            case Round():
                meter.add(event)
            case Reading():
                meter.read(event)
            case Notice(text):
                chat, left_out = self.running.chat, text.endswith(LEFT_OUT)
                told = left_out and chat.told_left_out  # it comes with every reply from now on
                chat.told_left_out |= left_out
                if not told:
                    self._tell(chat, NoticeAdded(text))
            case Finished(whole):
                text = self._begun + whole.text
                reply.finish(dataclasses.replace(whole, text=text))
                meter.finish(whole.stats)
            case ReplyFormat():
                pass
        if self._calls is not None:
            self._calls.take(event)
            reply.calls[:], reply.calls_at = self._calls.calls, self._calls.at
            reply.held = self._calls.held
