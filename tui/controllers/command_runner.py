"""Sent messages and typed commands, carried out in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from textual.worker import Worker

from localspec.core.files import defects
from localspec.core.in_thread import in_thread
from tui.controllers.attached import AttachedFiles
from tui.controllers.branches import BranchController
from tui.controllers.chat_context import ChatContext
from tui.input.attachments import AttachError, NoFileError, read
from tui.input.message_draft import Draft
from tui.session import commands
from tui.session.commands import Command, CommandError, Value
from tui.session.open_chat import OpenChat
from tui.session.session import UnaskedMessage

Action = Callable[[Value], Awaitable[None] | None]
_SHOW_CHATS = ("new", "open", "chats", "resume", "import", "close", "delete", "undo")
"""Commands that show another chat, where what was sent behind them belongs."""
_AT_ONCE = ("allow", "deny")
"""Commands that mean what is on the screen now: behind slow ones they would answer another
question."""
_AS_TEXT = "; Enter again sends it as text"


class CommandRunner:
    """Takes what the composer sends."""

    def __init__(
        self,
        context: ChatContext,
        branches: BranchController,
        files: AttachedFiles,
        actions: Mapping[str, Action],
    ) -> None:
        self._screen, self._session = context.screen, context.session
        self._feedback = context.feedback
        self._composer, self._log = context.widgets.composer, context.widgets.log
        self._branches, self._actions, self._files = branches, actions, files
        self._queue: asyncio.Queue[Callable[[], None] | Command] = asyncio.Queue()
        self._worker: Worker[None] | None = None
        self._no_file: str | None = None
        """The last message that was refused because a file that it names does not exist."""

    def send(self, text: str, pasted: tuple[str, ...], obeyed: Callable[[], None]) -> None:
        """Carry out what was sent; the composer keeps what cannot be carried out. ``obeyed`` is
        called once a command is carried out, or at once where it is none.
        """
        if not self._send(text, pasted):
            obeyed()
        else:
            self._run(obeyed)

    def _send(self, text: str, pasted: tuple[str, ...]) -> bool:
        """Carry out what was sent; whether it is a command."""
        draft = self._files.draft(text.strip("\n"), pasted)
        message = text
        try:
            command = None if draft.begins_pasted else commands.parse(draft.text.rstrip())
            as_words = text == self._no_file
            self._no_file = None
            if command is None and not draft.slow:
                message = read(draft, as_words=as_words).message
        except (CommandError, AttachError) as error:
            self._composer.refuse()
            line = str(error)
            if isinstance(error, NoFileError):
                self._no_file = text
                line += _AS_TEXT
            self._feedback.hint(line)
            return False
        self._composer.accept()
        if command is not None or not draft.slow:
            self._feedback.unhint()
            self._log.anchor()
        if command is not None:
            self._run(command)
            return True
        waiting = self._waiting(message, slow=draft.slow)
        if draft.slow:
            reading = self._read(text, draft, waiting, as_words=as_words)
            self._screen.run_worker(reading, group="attach")
        else:
            self._ask(text, waiting)
        return False

    def _waiting(self, message: str, *, slow: bool) -> UnaskedMessage:
        """Note a message of the chat that is shown. It takes the place of the question that is
        edited, unless one that comes before it does.
        """
        chat, unasked = self._session.chat, self._session.unasked
        taken = any(one.read and one.edited is chat.editing for one in unasked)
        waiting = UnaskedMessage(chat, message, None if taken else chat.editing, not slow, not slow)
        unasked.append(waiting)
        return waiting

    async def _read(
        self, text: str, draft: Draft, waiting: UnaskedMessage, *, as_words: bool
    ) -> None:
        """Send a message with files that take a while to read, whatever is shown then; it comes
        back where they cannot be attached.
        """
        self._feedback.hint_briefly("reading the files")
        try:
            found = await in_thread(lambda gone: read(draft, as_words=as_words, cancelled=gone))
            await self._files.require_room(found.texts, waiting.chat)
        except AttachError as error:
            self._session.unasked.remove(waiting)
            no_file = isinstance(error, NoFileError)
            put = self._give_back(text, waiting.chat, str(error), _AS_TEXT if no_file else "")
            self._no_file = text if no_file and put else None
            return
        except Exception:  # a fault of localspec, which is reported
            self._session.unasked.remove(waiting)
            self._give_back(text, waiting.chat, "the files could not be read", "")
            raise
        self._feedback.unhint()
        if waiting.chat is self._session.chat:
            self._log.anchor()
        waiting.text, waiting.read = found.message, True
        self._ask(text, waiting)

    def _ask(self, text: str, waiting: UnaskedMessage) -> None:
        """Send a message after all earlier commands. It is listed and can be taken back; it comes
        back where its chat was closed, and is saved where the interface ends before.
        """
        session = self._session

        def ask() -> None:
            if waiting not in session.unasked:
                return
            session.unasked.remove(waiting)
            if waiting.chat in session.chats.all:
                self._branches.ask_in(waiting.chat, waiting.edited, waiting.text)
            else:
                why = "its chat was closed"
                self._give_back(text, waiting.chat, why, ": Enter sends the message here")

        if self._free:
            ask()  # at once, so that it is in its place where a reply is
        else:
            session.on_activity()
            self._run(ask)

    def _give_back(self, text: str, chat: OpenChat, why: str, enter: str) -> bool:
        """Put a message back where it was written, unless something else is written there, and say
        why there; here also what ``enter`` does with it. Returns whether Enter sends it now.
        """
        here = chat is self._session.chat or chat not in self._session.chats.all
        free = not (self._composer.text if here else chat.typed)
        line = why if free else f"{why}; Up in an empty line brings the message back"
        if not here:
            chat.typed = chat.typed or text
            self._feedback.unhint()
            self._session.tell_in(chat, line)
            return False
        if free:
            self._composer.put(text)
        self._feedback.hint(f"{why}{enter}" if free else line)
        return free

    def offer(self, line: str) -> None:
        """Run a command of the palette; one that needs an argument is put into the composer."""
        try:
            command = commands.parse(line)
        except CommandError:
            if self._composer.text.strip():
                self._feedback.hint("Up in an empty line brings back what was typed")
            self._composer.put_aside()
            self._composer.put(f"{line} ")
            self._composer.focus()
            return
        assert command is not None
        self._run(command)

    @property
    def _free(self) -> bool:
        return self._worker is None or self._worker.is_finished

    def _run(self, task: Callable[[], None] | Command) -> None:
        """Carry out a command, or send a message, after all earlier ones; an answer to a tool that
        asks at once, as its keys do.
        """
        if isinstance(task, Command) and task.name in _AT_ONCE:
            self._actions[task.name](task.value)
            return
        self._queue.put_nowait(task)
        if self._free:
            self._worker = self._screen.run_worker(self._run_all(), group="commands")

    async def _run_all(self) -> None:
        # Not in the handler of a message: a slow disk would hold up the drawing as well.
        while not self._queue.empty():
            task = self._queue.get_nowait()
            shown = self._session.chat
            try:
                await self._carry_out(task)
            except Exception as defect:  # noqa: BLE001 - a chat goes on without one command
                said = await asyncio.to_thread(defects.report, defect)
                await self._feedback.note(said, error=True)
            if isinstance(task, Command) and task.name in _SHOW_CHATS:
                for waiting in self._session.unasked:
                    moved = waiting.chat is shown is not self._session.chat
                    if moved and waiting.moves:
                        waiting.chat, waiting.edited = self._session.chat, None

    async def _carry_out(self, task: Callable[[], None] | Command) -> None:
        if not isinstance(task, Command):
            task()
        elif (running := self._actions[task.name](task.value)) is not None:
            await running
