"""The open chats, and which of them is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.chats.values import model_at
from localspec.core.events import ModelInfo
from tui.session.conversation import Conversation
from tui.session.open_chat import OpenChat
from tui.session.recorder import ChatRecorder

if TYPE_CHECKING:
    from localspec.core.options import Options


class OpenChats:
    """At least one chat, in the order in which they were opened."""

    def __init__(self, first: OpenChat) -> None:
        self.all = [first]
        self.current = first
        """The chat that is shown."""

    @property
    def place(self) -> int:
        """Index of the chat that is shown."""
        return self.all.index(self.current)

    @property
    def next_to_answer(self) -> OpenChat | None:
        """A chat with a pending reply that may begin; the one that is shown comes first."""
        return next((chat for chat in (self.current, *self.all) if chat.may_start), None)

    def find(self, identity: str) -> OpenChat | None:
        """The open chat with that id."""
        return next((chat for chat in self.all if chat.recorder.info.id == identity), None)

    def fresh(self) -> OpenChat:
        """A new chat with the same system prompt; not in `all` yet."""
        system = self.current.conversation.system
        return self.with_recorder(Conversation(system), self.current.recorder)

    def with_recorder(self, conversation: Conversation, recorder: ChatRecorder) -> OpenChat:
        """A chat that is saved where ``recorder`` saves; not in `all` yet."""
        chat = OpenChat(conversation, recorder.another())
        chat.meter.copy_model(self.current.meter)
        return chat

    def add(self, chat: OpenChat) -> None:
        """Open ``chat`` after the one that is shown, or in its place if that is untouched."""
        place = self.place
        if self.current.untouched:
            self.all[place] = self.current = chat
        else:
            self.all.insert(place + 1, chat)

    def remove(self) -> OpenChat:
        """Close the chat that is shown; returns the one to show now."""
        place = self.place
        fresh = self.fresh()
        self.all.remove(self.current)
        if not self.all:
            self.all.append(fresh)
        return self.all[min(place, len(self.all) - 1)]

    def model_opened(self, info: ModelInfo, asked: Options | None, server: str = "") -> None:
        """Another model answers in all chats; ``asked`` has the names that the user gave, and
        ``server`` is the address of a server that answers.
        """
        for chat in self.all:
            chat.meter.opened(info)
            if asked is not None:
                chat.recorder.use_model(asked.model, asked.draft)
            elif server:
                chat.recorder.use_model(model_at(server, info.name), None)

    def forget_recipes(self) -> None:
        """Another model answers: earlier replies cannot be repeated any more."""
        for chat in self.all:
            chat.conversation.forget_recipes()
