"""The open chat on disk: saved as it grows, and put back when it is resumed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable

from localspec.chats.record import ChatRecord
from localspec.chats.saver import Saver
from localspec.chats.values import Chat, ChatInfo, ChatMessage, started
from localspec.models.catalog.portable import portable
from tui.session import reply_record
from tui.session.archive import ChatArchive, SavedChat
from tui.session.conversation import ChatTurn, Conversation
from tui.session.versions import differs, is_news


class ChatRecorder:
    """Saves one open chat; without a saver nothing is saved."""

    def __init__(
        self, saver: Saver | None = None, model: str | None = None, draft: str | None = None
    ) -> None:
        """``model`` and ``draft`` are the names that the user gave."""
        self._saver = saver
        self._model, self._draft = portable(model), portable(draft)
        info = started(model=self._model, draft=self._draft)
        self._record = ChatRecord(saver, info, stored=False)
        self.archive = ChatArchive(saver)
        """All chats that are saved in the same place."""
        self.on_notice: Callable[[str], None] = lambda _: None
        """Called in the event loop with lines for the user: saving fails, or works again."""
        self.on_notice_of: Callable[[str, str], None] = lambda *_: None
        """Called likewise, with the id of a chat and a line about it alone."""

    @property
    def info(self) -> ChatInfo:
        """Title, model and branch of the chat."""
        return self._record.info

    def listen(self) -> None:
        """Pass the saver's notices on from now on; to be called in the event loop."""
        if self._saver is not None:
            loop = asyncio.get_running_loop()
            self._saver.tell = lambda line: _in_loop(loop, self.on_notice, line)
            self._saver.tell_of = lambda chat, line: _in_loop(loop, self.on_notice_of, chat, line)
            if self._saver.failing is not None:
                self.on_notice(f"this chat is not being saved: {self._saver.failing}")

    @property
    def saves(self) -> bool:
        """Whether there is a file to save to."""
        return self._saver is not None

    @property
    def why_unsaved(self) -> str | None:
        """Why this chat cannot be saved; None if it can."""
        return self._saver.why_unsaved(self.info.id) if self._saver is not None else None

    def close(self) -> tuple[str, ...]:
        """Save what is pending; a line for each reason why something is not saved."""
        return self._saver.close() if self._saver is not None else ()

    def leave(self) -> None:
        """The chat is not open here any more."""
        if self._saver is not None:
            self._saver.leave(self.info.id)

    def another(self) -> ChatRecorder:
        """A recorder for a new chat in the same place; it is saved from its first message on."""
        return ChatRecorder(self._saver, self._model, self._draft)

    def resume(self, saved: SavedChat, conversation: Conversation) -> None:
        """Load a saved chat into ``conversation`` and save to it from now on."""
        info = saved.chat.info
        if self._saver is not None:
            self._saver.know(saved.chat)
        self._record = ChatRecord(self._saver, info, stored=True)
        self._set_models()
        conversation.system = info.system
        self._forget_how_others_reply(saved.turns)
        conversation.load(saved.turns, info.leaf)

    def take_in(self, saved: SavedChat, conversation: Conversation) -> int:
        """Add what another window has saved in this chat, and has made of replies that are here;
        how many messages.
        """
        ours = {turn.id: turn for turn in conversation.all_turns}
        gone_on = {turn.parent for turn in ours.values()}  # since the file was read, perhaps
        new: list[ChatTurn] = []
        apart = set[int | None]()
        """Turns that get a row of their own once ours are saved: what follows them in the file was
        written below another text, and is taken in when it has that here.
        """
        for turn in saved.turns:  # parents first
            shown = ours.get(turn.id)
            if turn.parent in apart:
                apart.add(turn.id)
            elif turn.id not in gone_on and is_news(turn, shown):
                new.append(turn)
            elif shown is not None and differs(turn, shown):
                apart.add(turn.id)
        if self._saver is not None:
            taken = {turn.id for turn in new}
            theirs = [m for m in saved.chat.messages if m.id in taken]
            self._saver.know_messages(self.info.id, theirs)
        self._forget_how_others_reply(new)
        conversation.take_in(new)
        return len(new)

    def _forget_how_others_reply(self, turns: Iterable[ChatTurn]) -> None:
        """Only its own replies can be made again by the model that answers."""
        for turn in turns:
            if self._model not in (None, turn.last_model):
                turn.saved_how = None

    def in_memory(self, conversation: Conversation) -> Chat:
        """The chat as it is on the screen, saved or not."""
        leaf = conversation.turns[-1].id if conversation.turns else None
        info = dataclasses.replace(self.info, system=conversation.system, leaf=leaf)
        return Chat(info, tuple(_message(turn) for turn in conversation.all_turns))

    def save_view(self, conversation: Conversation) -> None:
        """Save which branch is shown, and the system prompt."""
        self._record.set_system(conversation.system)
        self._record.show_branch(conversation.turns[-1].id if conversation.turns else None)

    def use_model(self, model: str, draft: str | None) -> None:
        """Another model answers from now on, or another draft model helps it."""
        self._model, self._draft = portable(model), portable(draft)
        self._set_models()

    def _set_models(self) -> None:
        if self._model is not None:
            self._record.set_models(self._model, self._draft)

    def rename(self, title: str) -> None:
        """Set a title that later questions do not change."""
        self._record.rename(title)

    def propose_title(self, title: str) -> None:
        """Set a title that the model wrote; one that the user gave stays."""
        self._record.propose_title(title)

    def begin_reply(
        self, conversation: Conversation, question: ChatTurn | None, reply: ChatTurn
    ) -> Callable[[], None]:
        """Save a question, and its reply as it grows; returns what saves the end of the reply."""
        record = self._record
        record.set_system(conversation.system)
        asked = None if question is None else _message(question)
        record.begin_reply(asked, lambda: _message(reply))
        return lambda: record.end_reply(_message(reply))

    def save_calls(self, reply: ChatTurn) -> None:
        """Save how far the calls of a reply have come, whose text has ended: what has run may have
        changed something, and is not to be run again because nobody knows of it.
        """
        self._record.end_reply(_message(reply))

    def ask(self, conversation: Conversation, question: ChatTurn) -> None:
        """Save a question that is not answered yet."""
        self._record.set_system(conversation.system)
        self._record.ask(_message(question))
        self.save_view(conversation)


def _in_loop(loop: asyncio.AbstractEventLoop, tell: Callable[..., None], *words: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, *words)


def _message(turn: ChatTurn) -> ChatMessage:
    details = reply_record.details(turn)
    return ChatMessage(turn.id, turn.parent, turn.role, turn.text, turn.created, turn.end, details)
