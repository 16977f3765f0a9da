"""The open chats, which of them is shown, and which windows have a chat open."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chats.values import model_at
from localspec.core.errors import LocalspecError
from localspec.core.events import ModelInfo
from localspec.core.files import paths
from localspec.core.processes import place, starts
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
        self._closed: list[OpenChat] = []
        """Chats that were closed, in which something grew still when that was last looked at."""

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
        self._closed.append(self.current)
        self.leave_closed()
        if not self.all:
            self.all.append(fresh)
        return self.all[min(place, len(self.all) - 1)]

    def leave_closed(self) -> None:
        """Leave the files of closed chats in which nothing grows any more: what a stopped reply or
        call has come to is saved after its chat was closed. One may be open again by then.
        """
        over = [chat for chat in self._closed if not chat.growing]
        self._closed = [chat for chat in self._closed if chat.growing]
        used = {chat.recorder.info.id for chat in (*self.all, *self._closed)}
        for chat in over:
            if chat.recorder.info.id not in used:
                chat.recorder.leave()

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


class Presence:
    """Notes in the folder of states, one for each window and chat; dead windows count for none.
    Their names begin with the place of the window, see `localspec.core.processes.place`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._mine: dict[str, Path] = {}
        """The notes of this window, by the ids of the chats."""
        self._told: dict[str, int] = {}
        """Other windows of a chat that the user knows of."""
        self._tidy = False
        """Whether the notes of killed windows were looked for, of all chats."""

    def note_window(self, chat: str) -> str:
        """Note that a chat is open here; a line where more windows have it than were told before.

        A folder that cannot be written is no reason to say anything: nothing is lost by it.
        """
        try:
            folder = self._folder or paths.make(paths.state_dir() / "open")
            pid, here = os.getpid(), place.here()
            named = folder / f"{here}{chat}-{pid}-{starts.began(pid):.2f}"
            note = self._mine.setdefault(chat, named)
            note.touch(mode=0o600)
            notes = folder.glob("*" if not self._tidy else f"{here}{chat}-*")
            alive = [one for one in notes if one != note and self._lives(one, here)]
            self._tidy = True
            others = sum(one.name.startswith(f"{here}{chat}-") for one in alive)
        except (OSError, LocalspecError):
            return ""
        known, self._told[chat] = self._told.get(chat, 0), others
        if others <= known:
            return ""
        windows = "another window has" if others == 1 else f"{others} other windows have"
        return (
            f"{windows} this chat open: each writes a branch of its own, and none is lost; "
            "resume the chat to see the others"
        )

    @staticmethod
    def _lives(note: Path, here: str) -> bool:
        """Whether the window of a note runs, as far as can be told here; the note of one that does
        not is removed.
        """
        if note.name.startswith(here):
            pid, _, began = note.name.rpartition("-")
            with contextlib.suppress(ValueError):  # some other name
                if starts.runs(int(pid.rpartition("-")[2]), float(began)):
                    return True
        elif not place.is_forsaken(note.stat().st_mtime):
            return False
        note.unlink(missing_ok=True)
        return False

    def leave(self, chat: str) -> None:
        """A chat is not open here any more."""
        self._told.pop(chat, None)
        if note := self._mine.pop(chat, None):
            self._remove(note)

    def close(self) -> None:
        """This window has no chat open any more."""
        for note in self._mine.values():
            self._remove(note)
        self._mine.clear()

    @staticmethod
    def _remove(note: Path) -> None:
        with contextlib.suppress(OSError):
            note.unlink(missing_ok=True)
