"""Sent messages and typed commands, carried out in their order."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from textual.screen import Screen
from textual.worker import Worker

from tui.controllers.attached import AttachedFiles
from tui.controllers.status import Feedback
from tui.input.attachments import AttachError, NoFileError, attach, attachments, slow
from tui.session import commands
from tui.session.commands import Command, CommandError, Value
from tui.session.session import Session
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer

Action = Callable[[Value], Awaitable[None] | None]


class CommandRunner:
    """Takes what the composer sends; commands without an action change the session's settings."""

    def __init__(
        self,
        screen: Screen[Any],
        session: Session,
        feedback: Feedback,
        composer: Composer,
        log: ChatLog,
        *,
        ask: Callable[[str], None],
        files: AttachedFiles,
        actions: Mapping[str, Action],
    ) -> None:
        self._screen, self._session, self._feedback = screen, session, feedback
        self._composer, self._log = composer, log
        self._ask, self._actions, self._files = ask, actions, files
        self._queue: asyncio.Queue[str | Command] = asyncio.Queue()
        self._worker: Worker[None] | None = None
        self._no_file: str | None = None
        """The last message that was refused because a file that it names does not exist."""

    def send(self, text: str) -> None:
        """Carry out what was sent; the composer keeps what cannot be carried out."""
        try:
            command = commands.parse(text.strip())
            as_words = text == self._no_file
            self._no_file = None
            if command is None and slow(text):
                self._composer.accept()
                self._screen.run_worker(self._read(text, as_words=as_words), group="attach")
                return
            message = attach(text.strip("\n"), as_words=as_words) if command is None else ""
        except (CommandError, AttachError) as error:
            self._composer.refuse()
            line = str(error)
            if isinstance(error, NoFileError):
                self._no_file = text
                line += "; Enter again sends it as text"
            self._feedback.hint(line)
            return
        self._feedback.unhint()
        self._composer.accept()
        self._log.anchor()
        self._run(message if command is None else command)

    async def _read(self, text: str, *, as_words: bool) -> None:
        """Send a message with files that take a while to read; it comes back where they cannot be
        attached.
        """
        chat = self._session.chat
        self._feedback.hint_briefly("reading the files")
        try:
            found = await asyncio.to_thread(attachments, text, as_words=as_words)
            await self._files.require_room(found)
        except AttachError as error:
            self._no_file = text if isinstance(error, NoFileError) else None
            if not self._composer.text:
                self._composer.put(text)
            line = str(error)
            self._feedback.hint(f"{line}; Enter again sends it as text" if self._no_file else line)
            return
        self._feedback.unhint()
        if self._session.chat is not chat:
            self._session.show(chat)
        self._log.anchor()
        self._run("\n\n".join([text.strip("\n"), *(one.block for one in found)]))

    def offer(self, line: str) -> None:
        """Run a command of the palette; one that needs an argument is put into the composer."""
        try:
            command = commands.parse(line)
        except CommandError:
            self._composer.put(f"{line} ")
            self._composer.focus()
            return
        assert command is not None
        self._run(command)

    def _run(self, task: str | Command) -> None:
        """Carry out a message or a command after all earlier ones."""
        free = self._worker is None or self._worker.is_finished
        if free and isinstance(task, str):
            self._ask(task)  # at once, so that it belongs to the chat that is shown now
            return
        self._queue.put_nowait(task)
        if free:
            self._worker = self._screen.run_worker(self._run_all(), group="commands")

    async def _run_all(self) -> None:
        # Not in the handler of a message: a slow disk would hold up the drawing as well.
        while not self._queue.empty():
            task = self._queue.get_nowait()
            if isinstance(task, str):
                self._ask(task)
            elif (action := self._actions.get(task.name)) is None:
                # A schema is tried out in another process first.
                change = functools.partial(self._session.change, task)
                slow = task.name == "schema"
                self._session.tell(await asyncio.to_thread(change) if slow else change())
                self._composer.placeholder = self._session.settings.invitation
            else:
                running = action(task.value)
                if running is not None:
                    await running
