"""An open chat: its conversation, its figures, and the replies that are pending in it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.chats.values import End
from tui.session.conversation import ChatTurn, Conversation
from tui.session.meter import Meter
from tui.session.notifications import Notification
from tui.session.recorder import ChatRecorder

if TYPE_CHECKING:
    import asyncio

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


READING = 0.75
"""Seconds between drawing a question and an answer to it: longer than any keyboard waits before it
repeats a key that is held down.
"""


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A reply to be made."""

    text: str | None = None
    """The question; None where the last question is answered again."""
    unfinished: ChatTurn | None = None
    """The reply to continue."""
    ended: End | None = None
    """How it had ended; restored if it cannot be continued."""
    variant_of: ChatTurn | None = None
    """The question that is answered once more, on a branch that is not shown."""
    after: ChatTurn | None = None
    """The reply whose calls have results for the model to read."""
    variant: int = 0
    """Number of the variant; a fixed seed is increased by it."""


@dataclass(slots=True, eq=False)
class Question:
    """A tool that waits for permission."""

    tool: OfferedTool
    arguments: str
    answer: asyncio.Future[Answer]
    _since: float | None = None
    """When it was drawn, or answered too soon; None before."""

    def drawn(self) -> None:
        """The user sees it from now on."""
        if self._since is None:
            self._since = time.monotonic()

    def reply(self, answer: Answer) -> bool:
        """Give the answer; only the first one counts. Returns whether it could be meant: a key that
        is held down, from the question before, never is.
        """
        if self._since is None:
            return False
        before, self._since = self._since, time.monotonic()
        if self._since - before < READING:
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
        self.queue: deque[str] = deque()
        """Messages that were sent and not asked yet."""
        self.growing: list[ChatTurn] = []
        """The replies that are being made here: one, or variants of one on different branches."""
        self.compacting = False
        """Whether the next reply is a summary, from which a new branch begins."""
        self.busy_since: float | None = None
        """When the work on the last question began; None while there is none."""
        self.question: Question | None = None
        """A tool that waits for permission."""
        self.permissions: Permissions | None = None
        """What tools may run here; None before one was asked for."""
        self._results: deque[ChatTurn] = deque()
        """Replies whose calls have results for the model to read."""
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
        self._again = False
        """Whether to answer the last question again."""
        self._variants: deque[PendingReply] = deque()
        """Variants to be made at the same time as the first one."""
        self._continued: End | None = None
        """How the last reply ended, where it will be continued."""

    @property
    def title(self) -> str:
        """Its title in the list of chats."""
        return "new chat" if self.fresh else self.recorder.info.title

    @property
    def fresh(self) -> bool:
        """Whether it has neither messages nor a title of its own."""
        return not (self.conversation.turns or self.recorder.info.named)

    @property
    def untouched(self) -> bool:
        """Whether nothing was asked, typed or named here."""
        named = self.recorder.info.named
        return not (self.conversation.turns or self.waits or named or self.typed.strip())

    @property
    def waits(self) -> bool:
        """Whether a reply is pending."""
        pending = self.queue or self._again or self._continued or self._variants
        return bool(pending or self._results)

    @property
    def may_start(self) -> bool:
        """Whether a pending reply may begin now: one at a time, and variants beside it."""
        beside = self._results or (self._variants and not self._again)
        return bool(beside) or (self.waits and not self.growing)

    def take(self) -> PendingReply:
        """The reply to make next."""
        if self._results:
            return PendingReply(after=self._results.popleft())
        if self._again:
            self._again = False
            return PendingReply()
        if self._variants:
            return self._variants.popleft()
        if self._continued:
            ended, self._continued = self._continued, None
            return PendingReply(unfinished=self.conversation.turns[-1], ended=ended)
        return PendingReply(self.queue.popleft())

    def drop_pending(self) -> None:
        """Make no pending reply."""
        self.queue.clear()
        if self._continued:
            self.conversation.turns[-1].end = self._continued
        self._again, self._continued = False, None
        self._variants.clear()
        self._results.clear()

    def go_on(self, reply: ChatTurn) -> None:
        """Have the model read the results of a reply's calls."""
        self._results.append(reply)

    def edit(self, turn: ChatTurn, text: str) -> None:
        """Ask ``text`` in place of ``turn``, on a branch of its own."""
        self.conversation.rewind(turn)
        self.queue.appendleft(text)

    def begin_from(self, summary: str) -> None:
        """Begin a branch with a summary in place of all messages; they stay on theirs."""
        self.compacting = False
        self.edit(self.conversation.turns[0], f"{_SUMMARIZED}\n\n{summary}")

    def regenerate(self) -> bool:
        """Answer the last question again on a branch of its own; whether there is a question."""
        turns = self.conversation.turns
        question = next((t for t in reversed(turns) if t.role == "user"), None)
        if question is None:
            return False
        while turns[-1] is not question:
            self.conversation.rewind(turns[-1])
        self._again = True
        return True

    def vary(self, count: int) -> bool:
        """Answer the last question ``count`` times more, each on a branch of its own; whether there
        is a question.
        """
        if not self.regenerate():
            return False
        question = self.questions[-1]
        self._variants.extend(PendingReply(variant_of=question, variant=i) for i in range(1, count))
        return True

    def stop_varying(self) -> None:
        """Make no further variants."""
        self._variants.clear()

    def continue_reply(self) -> bool:
        """Continue a stopped last reply, or answer a last question that has no reply.

        Returns whether there is either.
        """
        turns = self.conversation.turns
        if not turns:
            return False
        if turns[-1].role == "user":
            self._again = True
            return True
        if turns[-1].awaits_reply:
            self._results.append(turns[-1])
            return True
        if turns[-1].calls_at is not None:  # it was cut inside of a call
            return self.regenerate()
        if turns[-1].end in (None, "stop"):
            return False
        self._continued, turns[-1].end = turns[-1].end, None
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
        """Take the figures and the used context from the last reply of the branch that is shown."""
        reply = self.conversation.last_reply
        if not self.growing:
            stats = reply.stats if reply is not None else None
            self.meter.show(stats)
            self.meter.used = stats.prompt_tokens + stats.emitted if stats is not None else 0

    def system(self, text: str | None) -> None:
        """Set and save the system prompt."""
        self.conversation.system = text
        self.recorder.save_view(self.conversation)
