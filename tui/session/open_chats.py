"""Which chats are open, and which of them is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.core.events import ModelInfo
from tui.session.conversation import Conversation
from tui.session.open_chat import OpenChat
from tui.session.persistence import Kept

if TYPE_CHECKING:
    from localspec.loading.options import Options


class OpenChats:
    """At least one, in the order in which they were opened."""

    def __init__(self, first: OpenChat) -> None:
        self.all = [first]
        self.current = first
        """The one that is looked at."""

    @property
    def place(self) -> int:
        """Of the one that is looked at; the first is 0."""
        return self.all.index(self.current)

    @property
    def next_to_answer(self) -> OpenChat | None:
        """One that waits for a reply; the one that is looked at comes first."""
        return next((chat for chat in (self.current, *self.all) if chat.waits), None)

    def find(self, identity: str) -> OpenChat | None:
        """The open chat with that id."""
        return next((chat for chat in self.all if chat.kept.info.id == identity), None)

    def fresh(self) -> OpenChat:
        """One to begin in, with the same system prompt; it is not on the list yet."""
        return self.beside(Conversation(self.current.conversation.system), self.current.kept)

    def beside(self, conversation: Conversation, kept: Kept) -> OpenChat:
        """One that is kept where ``kept`` is, as a chat of its own; not on the list yet."""
        chat = OpenChat(conversation, kept.another())
        chat.meter.like(self.current.meter)
        return chat

    def add(self, chat: OpenChat) -> None:
        """Open it after the one that is looked at, or in its place if nothing was said there."""
        place = self.place
        if self.current.untouched:
            self.all[place] = self.current = chat
        else:
            self.all.insert(place + 1, chat)

    def remove(self) -> OpenChat:
        """Close the one that is looked at; returns the one to look at now."""
        place = self.place
        fresh = self.fresh()
        self.all.remove(self.current)
        if not self.all:
            self.all.append(fresh)
        return self.all[min(place, len(self.all) - 1)]

    def opened(self, info: ModelInfo, asked: Options | None) -> None:
        """Another model answers in all of them; ``asked`` is how that was said."""
        for chat in self.all:
            chat.meter.opened(info)
            if asked is not None:
                chat.kept.use_model(asked.model, asked.draft)

    def forget_how(self) -> None:
        """How replies were made does not matter any more: the model is another."""
        for chat in self.all:
            chat.conversation.forget_how()
