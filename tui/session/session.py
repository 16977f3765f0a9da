"""The state of the interface without any widget: open chats, the engine, and pending replies.

`ReplyTask` writes into conversations and meters as tokens arrive; the screen reads them when its
timer ticks, and takes one-time events from `take_notifications`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.core.errors import UsageError
from localspec.core.events import Examination
from localspec.engine.port import Engine
from tui.session.archive import SavedChat
from tui.session.comparison import ReplyComparison
from tui.session.conversation import ChatTurn, Conversation
from tui.session.notifications import (
    ConversationChanged,
    NoticeAdded,
    Notification,
    ReplyFailed,
)
from tui.session.open_chat import SUMMARIZE, OpenChat
from tui.session.open_chats import OpenChats, Presence
from tui.session.recorder import ChatRecorder
from tui.session.reply_task import ReplyTask
from tui.session.session_engine import Phase, SessionEngine
from tui.session.settings import Settings
from tui.session.tool_shelf import ToolShelf

if TYPE_CHECKING:
    from localspec.core.options import Options


_EXPORT = "; /export FILE keeps it"


@dataclasses.dataclass(slots=True, eq=False)
class UnaskedMessage:
    """A message that waits for a command sent before it, or for the files that it names."""

    chat: OpenChat
    """Where it was sent, or the chat that a command before it has shown since."""
    text: str
    """With its files, once they are read."""
    edited: ChatTurn | None
    """The question that it takes the place of."""
    moves: bool = True
    """Whether commands that show another chat take it there: not where reading its files takes a
    while, in which later commands may be carried out.
    """
    read: bool = True
    """Whether its files are read; before, it is not listed."""


class Session:
    """Open chats and the engine that answers in them."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        system: str | None = None,
        recorder: ChatRecorder | None = None,
        tools: ToolShelf | None = None,
        *,
        options: Options | None = None,
        reopen: Callable[[Options], Engine] | None = None,
    ) -> None:
        """``options`` are those of ``engine``; ``reopen`` makes an engine with other options."""
        self.engine = SessionEngine(engine, options, reopen, self._notify)
        self.settings = settings
        self.chats = OpenChats(OpenChat(Conversation(system), recorder or ChatRecorder()))
        self.chat.recorder.on_notice = self._tell_of_saving
        self.chat.recorder.on_notice_of = self._tell_of_chat
        self.unasked: list[UnaskedMessage] = []
        """Messages that are not in the queue of their chat yet."""
        self.on_activity: Callable[[], None] = lambda: None
        """Called when the screen should read the session again."""
        self._notifications: deque[Notification] = deque()
        self.presence = Presence()
        self.tools = tools or ToolShelf()
        self.replies = ReplyTask(
            self.engine, self.chats, settings, self._notify, self._activity, self.tools
        )

    @property
    def chat(self) -> OpenChat:
        """The chat that is shown."""
        return self.chats.current

    @property
    def replying(self) -> bool:
        """Whether a reply, or its comparison, is being made in the chat that is shown."""
        return self._busy(self.chat)

    def _busy(self, chat: OpenChat) -> bool:
        busy = self.replies.comparing is not None or bool(self.replies.of(chat))
        return (self.engine.phase is Phase.REPLYING and busy) or bool(self.tools.of(chat))

    def work_in(self, chat: OpenChat) -> str:
        """What is being done in a chat; "" where nothing is."""
        if chat.question is not None:
            return "a tool asks"
        if self.replies.of(chat):
            return "replying"
        return "a tool runs" if self.tools.of(chat) else ""

    @property
    def work_elsewhere(self) -> str:
        """What is being done in chats that are not shown: what waits for the user comes first."""
        works = [self.work_in(chat) for chat in self.chats.all if chat is not self.chat]
        for work in ("a tool asks", "replying", "a tool runs"):
            if count := works.count(work):
                return f"{work} in {'another chat' if count == 1 else f'{count} other chats'}"
        return ""

    @property
    def idle(self) -> bool:
        """Whether nothing will change by itself."""
        pending = self.replies.comparing or self.chats.next_to_answer
        starting = pending and self.engine.phase is Phase.READY
        done = self.engine.phase in (Phase.READY, Phase.DEAD)
        return done and not starting and not self._notifications

    def take_notifications(self) -> list[Notification]:
        """The notifications since the last call."""
        notifications = list(self._notifications)
        self._notifications.clear()
        return notifications

    def tell(self, line: str) -> None:
        """Show a line to the user in the chat that is shown."""
        self._notify(NoticeAdded(line))

    def tell_in(self, chat: OpenChat, line: str) -> None:
        """Show a line in one chat, as soon as it is shown."""
        if chat is self.chat:
            self.tell(line)
        else:
            chat.missed.append(NoticeAdded(line))

    @property
    def unsaved(self) -> str | None:
        """Why the chat that is shown is not being saved, and what keeps it; None where it is."""
        why = self.chat.recorder.why_unsaved
        return None if why is None else f"this chat is not being saved: {why}{_EXPORT}"

    def _tell_of_saving(self, line: str) -> None:
        """A line of the saver about all chats."""
        failing = self.chat.recorder.why_unsaved is not None
        self._notify(NoticeAdded(line + (_EXPORT if failing else ""), error=failing))

    def _tell_of_chat(self, identity: str, line: str) -> None:
        """A line of the saver about one chat: there, and here where messages are not saved."""
        chat = self.chats.find(identity)
        if chat is self.chat:
            self._tell_of_saving(line)
        elif chat is not None and chat.recorder.why_unsaved is None:
            self.tell_in(chat, line)
        elif chat is not None:  # it is said there when it is shown
            self._notify(NoticeAdded(f'"{chat.title}": {line}', error=True))

    # -- in the chat that is shown -------------------------------------------------------------

    def send(self, text: str, chat: OpenChat | None = None) -> None:
        """Queue a message, in the chat that is shown or another one; it is answered when the engine
        is free.
        """
        chat = chat or self.chat
        chat.ask(text)
        self.note_window(chat)
        self._activity()

    def note_window(self, chat: OpenChat) -> None:
        """Tell of other windows that have a chat open, where it is saved."""
        if chat.recorder.saves and (line := self.presence.note_window(chat.recorder.info.id)):
            self.tell_in(chat, line)

    def stop(self, chat: OpenChat | None = None) -> bool:
        """Stop the replies in the chat that is shown, or another one; whether there were any."""
        chat = chat or self.chat
        if not self._busy(chat):
            return False
        chat.stop_varying()
        self.replies.stop(chat)
        return True

    def edit(self, turn: ChatTurn, text: str, chat: OpenChat | None = None) -> None:
        """Ask ``text`` in place of ``turn``, on a branch of its own."""
        chat = chat or self.chat
        self.stop(chat)
        chat.edit(turn, text)
        self._changed(True, chat)

    def regenerate(self, question: ChatTurn | None = None, chat: OpenChat | None = None) -> bool:
        """Answer a question, or the last one, again on another branch; whether there is one."""
        chat = chat or self.chat
        self.stop(chat)
        return self._changed(chat.regenerate(question), chat)

    def compact(self) -> bool:
        """Ask for a summary of the branch that is shown, and then go on from it on a branch of its
        own; whether there is something to summarize.
        """
        chat = self.chat
        if self.replying or chat.waits or chat.conversation.last_reply is None:
            return False
        chat.ask(SUMMARIZE, summary=True)
        self.note_window(chat)
        self._activity()
        return True

    def vary(self, count: int) -> bool:
        """Answer the last question ``count`` times more, each on a branch of its own, at the same
        time where the engine can; whether there is a question.
        """
        self.stop()
        return self._changed(self.chat.vary(count))

    def continue_reply(self) -> bool:
        """Continue the last reply where it was stopped; whether it was stopped."""
        free = self.engine.phase in (Phase.READY, Phase.REPLYING) and not self.replying
        return self._changed(free and self.chat.continue_reply())

    def branch(self, step: int) -> bool:
        """Show the branch ``step`` further; whether there is one. Replies go on where they are."""
        if not self.chat.branch(step):
            return False
        self.replies.look(self.chat)
        return self._changed(True)

    def show_message(self, identity: int) -> ChatTurn | None:
        """Show the branch with a message; None where this chat does not have it."""
        conversation = self.chat.conversation
        if not any(turn.id == identity for turn in conversation.turns):
            if self.replying or not conversation.show_message(identity):
                return None
            self._changed(True)
        return next(turn for turn in conversation.turns if turn.id == identity)

    def take_back(self) -> str | None:
        """Remove the last queued message and return it; None where nothing is queued."""
        here = self._unasked_here
        if not here:
            shown = self.chat.conversation.last
            text = self.chat.take_back()
            self._changed(self.chat.conversation.last is not shown)
            return text
        self.unasked.remove(here[-1])
        self._activity()
        return here[-1].text

    @property
    def queue(self) -> list[str]:
        """Messages of the chat that is shown that were sent and not asked yet."""
        return [*self.chat.queue, *(one.text for one in self._unasked_here)]

    @property
    def _unasked_here(self) -> list[UnaskedMessage]:
        return [one for one in self.unasked if one.read and one.chat is self.chat]

    def _changed(self, done: bool, chat: OpenChat | None = None) -> bool:
        if done and chat in (None, self.chat):
            self._notify(ConversationChanged())
        elif done:
            self._activity()
        return done

    def compare(self) -> ReplyComparison | None:
        """Repeat the last reply without drafting; None where it cannot be repeated now.

        Raises:
            UsageError: the engine always drafts.
        """
        conversation = self.chat.conversation
        reply = conversation.last_reply
        recipe = None if reply is None else conversation.recipe_of(reply)
        if reply is None or recipe is None or self.engine.phase is not Phase.READY:
            return None
        if why := self.engine.client.why_not_plain:
            raise UsageError(why)
        self.replies.comparing = comparison = ReplyComparison(reply, recipe)
        self._activity()
        return comparison

    async def examine(self, turn: ChatTurn, index: int) -> Examination | None:
        """The candidates for one token of a reply; None where they cannot be computed any more.

        Raises:
            LocalspecError: the engine failed.
        """
        recipe = self.chat.conversation.recipe_of(turn)
        if recipe is None or index < recipe.how.start or self.engine.phase is not Phase.READY:
            return None
        tokens = recipe.reply.tokens[: index - recipe.how.start + 1]
        return await self.engine.client.examine(recipe.request(draft=True), tokens)

    # -- which chat is shown -------------------------------------------------------------------

    def new(self) -> None:
        """Open another chat; replies in the others continue."""
        if self.chat.untouched:
            self.show(self.chat)
            return
        chat = self.chats.fresh()
        self.chats.add(chat)
        self.show(chat)

    async def resume(self, start: str | None = None) -> None:
        """Show the saved chat whose id starts with ``start``, or the one used last.

        Raises:
            ChatsError: there is none, or it cannot be read; nothing changes then.
        """
        self.show_saved(await self.chat.recorder.archive.open(start))

    def show_saved(self, saved: SavedChat) -> int:
        """Show a saved chat; how many messages of another window were added to one that is open."""
        chat, added = self.chats.find(saved.chat.info.id), 0
        if chat is None:
            chat = self.chats.with_recorder(Conversation(), self.chat.recorder)
            chat.recorder.resume(saved, chat.conversation)
            self.chats.add(chat)
        else:
            added = chat.recorder.take_in(saved, chat.conversation)
        self.show(chat)
        self.note_window(chat)
        return added

    def show(self, chat: OpenChat) -> None:
        """Show another open chat."""
        left = self.chats.current
        for notification in self.take_notifications():
            # What the screen has not shown yet of the chat that is left is shown on its return.
            theirs = chat is not left and isinstance(notification, ReplyFailed | NoticeAdded)
            (left.missed if theirs else self._notifications).append(notification)
        self.chats.current = chat
        self._notifications.appendleft(ConversationChanged())
        for notification in chat.missed:
            self._notify(notification)
        chat.missed.clear()
        self._activity()

    def close(self) -> None:
        """Close the chat that is shown: its reply stops, queued messages are dropped."""
        self.stop()
        self.chat.drop_pending()
        self.presence.leave(self.chat.recorder.info.id)
        self.show(self.chats.remove())

    # -- the engine ----------------------------------------------------------------------------

    def restart(self) -> bool:
        """Start a dead engine again; whether it was dead."""
        restarts = self.engine.restart()
        if restarts:
            self._activity()
        return restarts

    def load(self, **changes: object) -> None:
        """Answer with other load-time options, for example another model; the chats stay open.

        Raises:
            UsageError: invalid options, or a model that is still being loaded.
        """
        options = self.engine.changed(changes)
        self.replies.stop()
        self.engine.exchange(options)
        self.chats.forget_recipes()
        self._activity()

    async def start_tools(self) -> None:
        """Start the servers of tools; replies wait for them for a while. A model elsewhere is told
        of none, so nothing is started for it.
        """
        if self.engine.client.server:
            return
        await self.tools.start(self._activity, self._notify)

    def _activity(self) -> None:
        self.replies.wake()
        self.on_activity()

    def _notify(self, notification: Notification) -> None:
        self._notifications.append(notification)
        self._activity()
