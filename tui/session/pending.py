"""Replies to be made in a chat, in their order and each with its place in the conversation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.chats.values import End
    from tui.session.conversation import ChatTurn


@dataclass(slots=True, eq=False)
class PendingReply:
    """A reply to be made, with its place in the chat: which branch is shown when it begins changes
    nothing about it.
    """

    after: ChatTurn | PendingReply | None
    """The question that it answers, the reply whose results the model reads, or what its own
    question follows: a turn, a reply that is pending before it, or None at the beginning.
    """
    text: str | None = None
    """Its question; None where `after` is answered."""
    unfinished: ChatTurn | None = None
    """The reply to continue, which is `after` too."""
    ended: End | None = None
    """How it had ended; restored if it is not continued."""
    variant: int = 0
    """Number of the variant; a fixed seed is increased by it."""
    beside: bool = False
    """Whether it may be made while other replies of the chat are."""
    summary: bool = False
    """Whether it is a summary, from which a new branch begins."""
    changes: tuple[ChatTurn, ChatTurn] | None = None
    """The question that its own takes the place of, and the end of the branch that was shown."""


class PendingReplies:
    """The replies that wait in one chat."""

    def __init__(self) -> None:
        self._all: deque[PendingReply] = deque()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PendingReply]:
        """The next one first; others may be taken out meanwhile."""
        return iter(tuple(self._all))

    @property
    def next(self) -> PendingReply:
        """The one to be made next; there has to be one."""
        return self._all[0]

    def take(self) -> PendingReply:
        """The one to be made now; there has to be one."""
        return self._all.popleft()

    def ask(self, text: str, last: ChatTurn | None, *, summary: bool) -> None:
        """Ask after ``last``, and after all that waits to follow it."""
        after: ChatTurn | PendingReply | None = last
        for pending in self._all:
            if pending.after is after:
                after = pending
        self._all.append(PendingReply(after, text, summary=summary))

    def go_on(self, reply: ChatTurn) -> None:
        """Have the model read the results of a reply's calls."""
        self._all.appendleft(PendingReply(reply, beside=True))

    def put_first(self, pending: PendingReply, instead_of: Iterable[ChatTurn]) -> None:
        """Make a reply before all others. Those without a question of their own are not made any
        more; messages that were to follow one of ``instead_of`` follow it.
        """
        for other in self:
            if other.text is None:
                self.drop(other)
        for turn in instead_of:
            self.move(turn, pending)
        self._all.appendleft(pending)

    def vary(self, count: int) -> None:
        """Make the next one ``count`` times."""
        after = self.next.after
        for number in range(1, count):
            self._all.insert(number, PendingReply(after, variant=number, beside=True))

    def drop(self, pending: PendingReply) -> None:
        """Do not make a reply; what is pending after it follows what it would have followed."""
        self._all.remove(pending)
        if pending.unfinished is not None:
            pending.unfinished.end = pending.ended
        self.move(pending, pending.after)

    def move(self, place: PendingReply | ChatTurn, to: PendingReply | ChatTurn | None) -> None:
        """Let what is pending after one place follow another one."""
        for pending in self._all:
            if pending.after is place:
                pending.after = to
