"""An open chat: its conversation, its figures, and the replies that are pending in it."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.session.conversation import ChatTurn, Conversation
from tui.session.meter import Meter
from tui.session.notifications import Notification
from tui.session.pending import PendingReplies, PendingReply
from tui.session.recorder import ChatRecorder

if TYPE_CHECKING:
    from localspec.tools.permission import Answer, Permissions
    from localspec.tools.values import OfferedTool


SUMMARIZE = (
    "Summarize our conversation so far: what was asked, what was found or decided, names, numbers "
    "and places that matter, and what is still open. Write so that the conversation can go on from "
    "the summary alone."
)
_SUMMARIZED = (
    "This is a summary of our conversation so far. Confirm in one sentence, and go on from it."
)
READING = 1.1
"""Seconds between drawing a question and an answer to it: longer than a keyboard waits before it
repeats a key that is held down (0.25 to 0.7 s as systems are set up, 1 s at most).
"""
APART = 0.55
"""Seconds between two answers to it: a key that is held down repeats about every 0.03 s, every
0.5 s at the slowest setting; one that is pressed again comes later.
"""


@dataclass(slots=True, eq=False)
class Question:
    """A tool that waits for permission."""

    turn: ChatTurn
    """The reply that calls it, on whichever branch."""
    tool: OfferedTool
    arguments: str
    answer: asyncio.Future[Answer]
    _since: float | None = None
    """When it was drawn; None before."""
    _pressed: float = -math.inf
    """When it was last answered too soon."""

    def drawn(self) -> None:
        """The user sees it from now on."""
        if self._since is None:
            self._since = time.monotonic()

    def reply(self, answer: Answer) -> bool:
        """Give the answer; only the first one counts. Returns whether it could be meant: a key that
        is held down, from the question before, never is.
        """
        now = time.monotonic()
        before, self._pressed = self._pressed, now
        if self._since is None or now - self._since < READING or now - before < APART:
            return False
        if not self.answer.done():
            self.answer.set_result(answer)
        return True


class OpenChat:
    """One of the open chats."""

    def __init__(self, conversation: Conversation, recorder: ChatRecorder) -> None:
        self.conversation = conversation
        self.recorder = recorder
        self.meter = Meter()
        self.pending = PendingReplies()
        self.growing: list[ChatTurn] = []
        """The replies that are being made here: one, or variants of one on different branches."""
        self.busy_since: float | None = None
        """When the work on the last question began; None while there is none."""
        self.question: Question | None = None
        """A tool that waits for permission."""
        self.asking = asyncio.Lock()
        """Held by the calls that ask: variants may call at the same time."""
        self.permissions: Permissions | None = None
        """What tools may run here; None before one was asked for."""
        self.missed: list[Notification] = []
        """Notifications to show when the chat is shown again."""
        self.told_left_out = False
        """Whether it was said that its oldest messages are left out of the context."""
        self.typed = ""
        """Text of the composer when the chat was left."""
        self.editing: ChatTurn | None = None
        """The question that the text of the composer will replace."""
        self.set_aside = ""
        """Text of the composer before a question was edited."""

    @property
    def title(self) -> str:
        """Its title in the list of chats."""
        return "new chat" if self.fresh else self.recorder.info.title

    @property
    def fresh(self) -> bool:
        """Whether it has neither messages nor a title of its own."""
        return self.conversation.empty and not self.recorder.info.named

    @property
    def untouched(self) -> bool:
        """Whether nothing was asked, typed or named here."""
        return self.fresh and not (self.waits or self.typed.strip())

    @property
    def waits(self) -> bool:
        """Whether a reply is pending."""
        return bool(self.pending)

    @property
    def may_start(self) -> bool:
        """Whether a pending reply may begin now: one at a time, and variants beside it."""
        return bool(self.pending) and (self.pending.next.beside or not self.growing)

    @property
    def queue(self) -> list[str]:
        """Messages that were sent and not asked yet."""
        return [pending.text for pending in self.pending if pending.text is not None]

    def ask(self, text: str, *, summary: bool = False) -> None:
        """Ask after all that is there and pending on the branch that is shown."""
        self.pending.ask(text, self.conversation.last, summary=summary)

    def take_back(self) -> str | None:
        """Remove the last queued message and return it; None where nothing is queued. A changed
        question is edited again, on the branch that it left.
        """
        asked = [pending for pending in self.pending if pending.text is not None]
        if not asked:
            return None
        taken = asked[-1]
        self.pending.drop(taken)
        if taken.changes is not None and self.conversation.last is taken.after:
            self.editing, left = taken.changes
            self.conversation.show_message(left.id)
        return taken.text

    def begin(self, pending: PendingReply) -> tuple[ChatTurn | None, ChatTurn]:
        """Put a reply, and its question where it has one, into its place in the conversation."""
        before, question = pending.after, None
        assert not isinstance(before, PendingReply)  # that one has begun
        if pending.text is not None:
            before = question = self._say(pending.text, before)
        reply = pending.unfinished or self.conversation.follow(before, "assistant")
        self.pending.move(pending, reply)
        return question, reply

    def _say(self, text: str, after: ChatTurn | None) -> ChatTurn:
        end = None if after is None else self.conversation.end_of(after)
        return self.conversation.follow(end, "user", text)

    def save_pending(self) -> None:
        """Save the messages that were not asked, as questions without a reply."""
        for pending in self.pending:
            if pending.text is not None and not pending.summary:
                assert not isinstance(pending.after, PendingReply)  # that one is a question now
                question = self._say(pending.text, pending.after)
                self.pending.move(pending, question)
                self.recorder.ask(self.conversation, question)
            self.pending.drop(pending)

    def leave_out(self, question: ChatTurn) -> None:
        """Take a question and its reply out of the branch that is shown, which they end."""
        left = self.conversation.turns[-2:]
        self.conversation.rewind(question)
        for turn in left:
            self.pending.move(turn, self.conversation.last)
        self.recorder.save_view(self.conversation)

    def drop_pending(self) -> None:
        """Make no pending reply."""
        for pending in self.pending:
            self.pending.drop(pending)

    def stop_varying(self) -> None:
        """Make no further variants."""
        for pending in self.pending:
            if pending.variant:
                self.pending.drop(pending)

    def go_on(self, reply: ChatTurn) -> None:
        """Have the model read the results of a reply's calls."""
        self.pending.go_on(reply)

    def edit(self, turn: ChatTurn, text: str) -> None:
        """Ask ``text`` in place of ``turn``, on a branch of its own."""
        turns = self.conversation.turns
        replaced = turns[turns.index(turn) :] if turn in turns else []
        changes = turn, self.conversation.last or turn
        self.conversation.rewind(turn)
        after = self.conversation.last
        self.pending.put_first(PendingReply(after, text, changes=changes), replaced)

    def begin_from(self, summary: ChatTurn, text: str) -> bool:
        """Begin a branch with a summary in place of all messages, which stay on theirs; whether it
        is shown.
        """
        shown = self.conversation.last is summary
        if shown:
            self.conversation.rewind(self.conversation.turns[0])
        self.pending.put_first(PendingReply(None, f"{_SUMMARIZED}\n\n{text}"), [summary])
        return shown

    def regenerate(self, question: ChatTurn | None = None) -> bool:
        """Answer a question, or the last one, again on another branch; whether there is one."""
        question = question or next(iter(self.questions[-1:]), None)
        if question is None:
            return False
        turns = self.conversation.turns
        replaced = turns[turns.index(question) :] if question in turns else []
        if len(replaced) > 1:
            self.conversation.rewind(replaced[1])
        self.pending.put_first(PendingReply(question), replaced)
        return True

    def vary(self, count: int) -> bool:
        """Answer the last question ``count`` times more, each on a branch of its own; whether there
        is a question.
        """
        if not self.regenerate():
            return False
        self.pending.vary(count)
        return True

    def continue_reply(self) -> bool:
        """Continue a stopped last reply, or answer a last question that has no reply.

        Returns whether there is either.
        """
        last = self.conversation.last
        if last is None:
            return False
        if last.role == "assistant" and last.awaits_reply:
            self.pending.put_first(PendingReply(last, beside=True), [])
            return True
        if last.role == "user" or last.calls_at is not None:  # it was cut inside of a call
            return self.regenerate()
        if last.end in (None, "stop"):
            return False
        ended, last.end = last.end, None
        self.pending.put_first(PendingReply(last, unfinished=last, ended=ended), [])
        return True

    def branch(self, step: int) -> bool:
        """Show the branch ``step`` further; whether there is one."""
        if not self.conversation.branch(step):
            return False
        self.recorder.save_view(self.conversation)
        return True

    @property
    def questions(self) -> list[ChatTurn]:
        """The user's messages on this branch, oldest first."""
        return [turn for turn in self.conversation.turns if turn.role == "user"]

    def edit_before(self) -> ChatTurn | None:
        """Edit the last question, or the one before the edited one; the first wraps to the last.

        Returns None where there is no question.
        """
        questions = self.questions
        if not questions:
            return None
        at = questions.index(self.editing) if self.editing in questions else 0
        self.editing = questions[at - 1]
        return self.editing

    def count_context(self) -> None:
        """Take the figures from the last reply of the branch that is shown, and the used context
        from the last one that knows it: a server may tell it only where a reply ends.
        """
        if self.conversation.last in self.growing:
            return
        reply = self.conversation.last_reply
        self.meter.show(reply.stats if reply is not None else None)
        told = (turn.stats for turn in reversed(self.conversation.turns) if turn.stats is not None)
        known = next((stats for stats in told if stats.prompt_tokens), None)
        self.meter.used = known.prompt_tokens + known.emitted if known is not None else 0

    def system(self, text: str | None) -> None:
        """Set and save the system prompt."""
        self.conversation.system = text
        self.recorder.save_view(self.conversation)
