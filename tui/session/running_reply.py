"""One reply of the engine, written into its turn and meter as its tokens arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localspec.core.errors import ContextError, LocalspecError, ThinkingSwitchError
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
from tui.session.conversation import ChatTurn
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
from tui.session.recipes import How, Made
from tui.session.session_engine import Phase, SessionEngine
from tui.session.settings import Settings

if TYPE_CHECKING:
    from localspec.core.reply_request import ReplyRequest
    from localspec.tools.toolbox import RequestTools
    from localspec.tools.written_calls import WrittenCalls

_TAKEN_OUT = "the message is not part of the chat any more; Up brings it back to be changed"


@dataclass(slots=True, eq=False)
class RunningReply:
    """A reply that is being made; saved as it grows, it leaves how to make it again."""

    chat: OpenChat
    turn: ChatTurn
    meter: Meter
    """The chat's own; a reply on a branch that is not shown has another."""
    pending: PendingReply
    question: ChatTurn | None
    """Its question, where that is new in the conversation."""
    settings: Settings
    engine: SessionEngine
    tools: RequestTools | None
    """Those that it may call."""
    refused: LocalspecError | None
    """Why it cannot be asked for: its question is recorded, and the reply fails."""
    tell: Callable[[OpenChat, Notification], None]
    """Passes notifications on to the chat."""
    stopped: bool = False
    save: Callable[[], None] = field(init=False)
    """Saves its end."""
    _handle: ReplyHandle | None = None
    """None until the request is sent."""
    _calls: WrittenCalls | None = None
    _begun: str = field(init=False)
    """The text that it continues."""
    _made: Made | None = field(init=False)
    """How the text that it continues was made, in this session."""
    _saved_how: How | None = field(init=False)
    """The same, in an earlier one."""

    def __post_init__(self) -> None:
        chat, turn = self.chat, self.turn
        self._begun = turn.text
        self._made, turn.made = turn.made, None
        self._saved_how, turn.saved_how = turn.saved_how, None
        self.save = chat.recorder.begin_reply(chat.conversation, self.question, turn)
        if turn is not chat.conversation.last:  # the branch that is shown stays the saved one
            chat.recorder.save_view(chat.conversation)

    def stop(self) -> None:
        """End it now; what was emitted is kept."""
        self.stopped = True
        if self._handle is not None:
            self._handle.interrupt()

    async def make(self, messages: tuple[Message, ...]) -> None:
        """Ask the engine, and take what comes until the reply ends or fails."""
        turn, start = self.turn, len(self.turn.tokens)
        self.tell(self.chat, ReplyStarted(self.question, turn))
        try:
            request = self._request(messages)
            how = How(
                request.sampling,
                request.max_tokens,
                next((m.content for m in messages[:1] if m.role == "system"), None),
                start,
                len(self._begun),
                request.grammar,
                request.thinking,
            )
            handle = self._handle = self.engine.client.reply(request)
            if self.stopped:
                handle.interrupt()
            async for event in handle:
                self._take(event)
                if isinstance(event, Finished):
                    turn.made = Made(event.reply, how, request.tools, hash(messages))
        except LocalspecError as error:
            turn.end = "failed"
            if self.pending.unfinished is not None and turn.text == self._begun:
                turn.end, turn.made = self.pending.ended, self._made
                turn.saved_how = self._saved_how
            if self.engine.phase is Phase.REPLYING:  # else `EngineDied` was sent already
                taken_out = isinstance(error, ContextError) and self._take_out()
                self.tell(self.chat, ReplyFailed(_with_way_out(error)))
                if taken_out:
                    self.tell(self.chat, NoticeAdded(_TAKEN_OUT))
        finally:
            if self._handle is not None:
                self._handle.close()

    def _request(self, messages: tuple[Message, ...]) -> ReplyRequest:
        if self.refused is not None:
            raise self.refused
        if self.tools is not None:
            from localspec.tools.written_calls import WrittenCalls  # only with tools

            self._calls = WrittenCalls(self.tools)
        return self.settings.request(messages, self.pending.variant, self.tools)

    def _take_out(self) -> bool:
        """Take a question that no context holds out of the branch that is shown: with it every
        later message would fail, or push all others out of the context. False where it is not new.
        """
        chat, question = self.chat, self.question
        if question is None or chat.conversation.turns[-2:] != [question, self.turn]:
            return False
        chat.leave_out(question)
        self.tell(chat, ConversationChanged())
        return True

    def _take(self, event: ReplyEvent) -> None:
        reply, meter = self.turn, self.meter
        match event:
            case Token():
                meter.token()
                reply.add(event)
            case Round():
                meter.add(event)
            case Reading():
                meter.read(event)
            case Notice(text):
                left_out = text.endswith(LEFT_OUT)
                told = left_out and self.chat.told_left_out  # it comes with every reply from now on
                self.chat.told_left_out |= left_out
                if not told:
                    self.tell(self.chat, NoticeAdded(text))
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


def _with_way_out(error: LocalspecError) -> LocalspecError:
    """The error, with the command that helps where the model cannot switch thinking: without it
    every later question would fail too.
    """
    if isinstance(error, ThinkingSwitchError):
        return ThinkingSwitchError(f"{error}; /think auto leaves it to the model")
    return error
