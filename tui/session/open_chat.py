"""A chat that is open: what was said in it, and what it waits for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from localspec.chats.values import End
from tui.session.conversation import Conversation, Turn
from tui.session.notifications import Happening
from tui.session.persistence import Kept
from tui.session.stats import Meter


@dataclass(frozen=True, slots=True)
class Work:
    """A reply to be made."""

    text: str | None = None
    """What the person says; None where what is there already is answered."""
    unfinished: Turn | None = None
    """The reply that is to go on."""
    ended: End | None = None
    """How it had ended; so it has again if it cannot go on."""


class OpenChat:
    """One of the chats that are open."""

    def __init__(self, conversation: Conversation, kept: Kept) -> None:
        self.conversation = conversation
        self.kept = kept
        """The chat on disk; keeps nothing where nothing is kept."""
        self.meter = Meter()
        self.queue: deque[str] = deque()
        self.speaking: Turn | None = None
        """The reply that is being made here."""
        self.missed: list[Happening] = []
        """What is to be shown when it is looked at again."""
        self.typed = ""
        """What the person had begun to write here."""
        self.editing: Turn | None = None
        """The question that what is typed will stand in place of."""
        self.set_aside = ""
        """What had been typed before a question was edited."""
        self._again = False
        """Whether the last question is to be answered once more."""
        self._onward: End | None = None
        """How the last reply, which is to go on, had ended."""

    @property
    def title(self) -> str:
        """As the list of chats has it."""
        known = self.conversation.turns or self.kept.info.named
        return self.kept.info.title if known else "new chat"

    @property
    def untouched(self) -> bool:
        """Whether nothing was said or begun here."""
        named = self.kept.info.named
        return not (self.conversation.turns or self.waits or named or self.typed.strip())

    @property
    def waits(self) -> bool:
        """Whether a reply is to be made."""
        return bool(self.queue or self._again or self._onward)

    def take(self) -> Work:
        """The reply to make next."""
        if self._again:
            self._again = False
            return Work()
        if self._onward:
            ended, self._onward = self._onward, None
            return Work(unfinished=self.conversation.turns[-1], ended=ended)
        return Work(self.queue.popleft())

    def forget_plans(self) -> None:
        """Nothing is to be answered any more."""
        self.queue.clear()
        if self._onward:
            self.conversation.turns[-1].end = self._onward
        self._again, self._onward = False, None

    def edit(self, turn: Turn, text: str) -> None:
        """Say something else in place of ``turn``, on a branch beside it."""
        self.conversation.rewind(turn)
        self.queue.appendleft(text)

    def regenerate(self) -> bool:
        """Have the last question answered once more, beside its reply; whether there is one."""
        turns = self.conversation.turns
        question = next((t for t in reversed(turns) if t.role == "user"), None)
        if question is None:
            return False
        while turns[-1] is not question:
            self.conversation.rewind(turns[-1])
        self._again = True
        return True

    def go_on(self) -> bool:
        """Have the last reply go on where it was stopped, or a question answered that has no reply;
        whether there is one.
        """
        turns = self.conversation.turns
        if not turns:
            return False
        if turns[-1].role == "user":
            self._again = True
            return True
        if turns[-1].end in (None, "stop"):
            return False
        self._onward, turns[-1].end = turns[-1].end, None
        return True

    def branch(self, step: int) -> bool:
        """Look at another branch, ``step`` further; whether there is one."""
        if not self.conversation.branch(step):
            return False
        self.kept.look(self.conversation)
        return True

    @property
    def questions(self) -> list[Turn]:
        """What the person said on this branch, oldest first."""
        return [turn for turn in self.conversation.turns if turn.role == "user"]

    def edit_before(self) -> Turn | None:
        """Take the last question up to be edited, or the one before the one that is; the first
        is followed by the last again. None where nothing was asked.
        """
        questions = self.questions
        if not questions:
            return None
        at = questions.index(self.editing) if self.editing in questions else 0
        self.editing = questions[at - 1]
        return self.editing

    def count_context(self) -> None:
        """How much of the context the last reply filled, as far as its own figures tell."""
        reply = self.conversation.last_reply
        if self.speaking is None:
            stats = reply.stats if reply is not None else None
            self.meter.used = stats.prompt_tokens + stats.emitted if stats is not None else 0

    def system(self, text: str | None) -> None:
        """Another system prompt; it is kept with the chat."""
        self.conversation.system = text
        self.kept.look(self.conversation)
