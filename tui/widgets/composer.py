"""The input field of the chat. It grows with the text; Enter sends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from rich.text import Text
from textual import events
from textual.app import SuspendNotSupported
from textual.message import Message
from textual.widgets import TextArea

from tui.input import keymap, long_text
from tui.input.attachments import dropped
from tui.input.completion import Completion, Known, completions
from tui.input.long_text import Pastes
from tui.render.text import plain

_INDENT = 4
"""Columns from one indentation to the next."""
_PATIENCE_SECONDS = 1.0
"""Longest wait of the composer for a key that the screen handles."""


class Composer(TextArea):
    """A text area that sends on Enter and remembers what was sent."""

    BINDINGS = keymap.COMPOSER

    @dataclass
    class Sent(Message):
        """The user sends a text."""

        text: str
        pasted: tuple[str, ...]
        """The parts of it that were pasted, and stood for by marks."""
        obeyed: asyncio.Event = field(default_factory=asyncio.Event)
        """To be set once a command is carried out, or something else is on its way."""

    @dataclass
    class Suggested(Message):
        """The completions of the word that is typed have changed."""

        found: list[Completion]
        chosen: int | None
        """Index of the completion that the arrow keys have selected."""

    @dataclass
    class Rejected(Message):
        """An action is not possible; the text is for the user."""

        text: str

    def __init__(self) -> None:
        super().__init__(
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="Message",
        )
        self._sent: list[str] = []
        self._recalled: int | None = None
        self._sending: str | None = None
        """Text that was sent and is not accepted yet."""
        self._following: list[str] = []
        """Texts that were sent meanwhile; they stand behind it in the composer."""
        self._command: Composer.Sent | None = None
        """A command of one word that was sent by the last key."""
        self._opened = False
        """Whether the last key or command has opened another screen."""
        self._pastes = Pastes()
        self._completions: list[Completion] = []
        self._chosen: int | None = None
        self._known = Known()
        self.take_back: Callable[[], str | None] = lambda: None
        """Removes the last queued message and returns it."""

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn: without the control characters that the model gets."""
        # One for one, or the cursor would be in the wrong column; tabs are expanded by Textual.
        parts = self.document.get_line(line_index).split("\t")
        harmless = "\t".join(plain(part).replace("\n", " ") for part in parts)
        return Text(harmless, end="", no_wrap=True)

    async def on_paste(self, event: events.Paste) -> None:
        """Insert text; a large one is folded."""
        # A large text is not laid out here: a mark takes its place until it is sent.
        event.prevent_default()
        event.stop()
        if self._left:
            self.app.post_message(events.Paste(event.text))
            return
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.replace(dropped(text) or self._pastes.fold(text), *self.selection)
        self.focus()

    async def on_key(self, event: events.Key) -> None:
        """Handle our own keys."""
        # A priority binding would run before letters typed earlier, an ordinary one after letters
        # typed later: our own keys are handled here, in the order in which they were pressed.
        if self._left:
            event.stop()
            event.prevent_default()
            self.app.post_message(events.Key(event.key, event.character))
            return
        active = self.screen.active_bindings.get(keymap.named(event.key))
        if active is None or not active.enabled:
            return
        # A key without an effect here is passed on to the screen.
        if active.node is self:
            done = await self.app.run_action(active.binding.action, self)
            await self._obeyed()
        else:
            done = active.node is self.screen and await self._by_the_screen(active.binding.action)
            self._opened = done and self.app.screen is not self.screen
        if done:
            event.stop()
            event.prevent_default()

    @property
    def _left(self) -> bool:
        """Whether a key of this line has opened another screen, which later ones are for."""
        self._opened = self._opened and self.app.screen is not self.screen
        return self._opened

    async def _obeyed(self) -> None:
        """Wait for a command that may open a screen, which the next keys are for."""
        command, self._command = self._command, None
        if command is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(command.obeyed.wait(), _PATIENCE_SECONDS)
            self._opened = self.app.screen is not self.screen

    async def _by_the_screen(self, action: str) -> bool:
        """Run a key of the screen after its earlier messages and before later typing.

        Otherwise text typed after a key for another chat would be sent in this one.
        """
        obeyed = asyncio.Event()

        async def obey() -> None:
            try:
                await self.app.run_action(action, self.screen)
            finally:
                obeyed.set()

        self.screen.call_later(obey)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(obeyed.wait(), _PATIENCE_SECONDS)
        return True

    def action_send(self) -> None:
        """Send the text, or insert the completion that the arrow keys have selected."""
        self._suggest()  # what was typed since has not reported its change yet
        if self._chosen is not None:
            self.action_complete()
            return
        text = self.text
        self.move_cursor(self.document.end)  # what is typed next follows what is sent
        if self._sending is None:
            self._send(text)
            return
        before = "".join((self._sending, *self._following))
        if text.startswith(before) and text.removeprefix(before).strip():
            self._following.append(text.removeprefix(before))

    def _send(self, text: str) -> None:
        if text.strip():
            self._sending = text
            # Directly to the screen: a bubbling message would arrive after later keys.
            sent = self.Sent(self._pastes.unfold(text), self.pasted(text))
            self._command = sent if text.startswith("/") and len(text.split()) == 1 else None
            self.screen.post_message(sent)

    def pasted(self, text: str) -> tuple[str, ...]:
        """The large texts that were pasted into ``text``."""
        return self._pastes.within(text)

    def remember(self, texts: Iterable[str]) -> None:
        """Add messages of earlier sessions, oldest first, to those that Up brings back."""
        new = [text for text in texts if text not in self._sent and not self._pastes.is_large(text)]
        self._sent[:0] = new
        if self._recalled is not None:
            self._recalled += len(new)

    def put(self, text: str) -> None:
        """Set the text, with the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def accept(self) -> None:
        """Remove the sent text; text typed since stays."""
        sent, self._sending = self._sending or self.text, None
        if not self._sent or self._sent[-1] != sent:
            self._sent.append(sent)
        self._recalled = None
        if self.text.startswith(sent):
            self.put(self.text.removeprefix(sent))
        else:  # it was changed meanwhile
            self._following.clear()
            self.put_aside()
        if self._following:
            self._send(self._following.pop(0))

    def put_aside(self) -> None:
        """Clear the composer; Up brings the text back."""
        text = self.text
        if text and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
        self._recalled = None
        self.clear()

    def refuse(self) -> None:
        """Keep the text: it could not be sent, nor what was sent after it."""
        self._sending = None
        self._following.clear()

    def action_newline(self) -> None:
        """A new line at the cursor."""
        self.insert("\n")

    def action_leave(self) -> None:
        """Quit where the composer is empty; otherwise delete the next character."""
        if self.text:
            self.action_delete_right()
        else:
            self.app.exit()

    def action_editor(self) -> None:
        """Edit the text in $EDITOR."""
        try:
            words = long_text.command()
            with self.app.suspend():
                text = self._edited(words)
        except long_text.EditorError as error:
            self.post_message(self.Rejected(str(error)))
        except SuspendNotSupported:
            self.post_message(self.Rejected("this terminal cannot run an editor"))
        else:
            self.put(text)

    def _edited(self, words: list[str]) -> str:
        # Textual restores the terminal only where no exception is raised.
        try:
            return long_text.edited(self._pastes.unfold(self.text), words)
        except long_text.EditorError as error:
            self.post_message(self.Rejected(str(error)))
            return self.text

    def action_complete(self) -> None:
        """Complete the word at the cursor, or indent a line of several; the focus stays."""
        self._suggest()  # as in `action_send`
        if not self._completions:
            row, column = self.cursor_location
            before = self.document.get_line(row)[:column]
            if self.document.line_count > 1 and not before.strip():
                self.insert(" " * (_INDENT - column % _INDENT))
            return
        first = self._completions[0]
        columns = zip(*(found.text for found in self._completions), strict=False)
        text = "".join(c[0] for c in takewhile(lambda c: len({*c}) == 1, columns))
        chosen = self._chosen or 0
        if self._chosen is not None or len(self._completions) == 1 or len(text) <= first.replaces:
            text = self._completions[chosen].text
            text += "" if text.endswith(os.sep) else " "
        row, column = self.cursor_location
        self.replace(text, (row, column - first.replaces), (row, column))

    def take(self, index: int) -> None:
        """Insert one of the completions."""
        shown = self._completions
        self._suggest()
        if self._completions == shown and index < len(shown):
            self._chosen = index
            self.action_complete()
        self.focus()

    def _suggest(self) -> None:
        row, column = self.cursor_location
        line = self.document.get_line(row)[:column]
        found = completions(line if row == 0 else f"\n{line}", self._known)
        if found != self._completions:
            self._completions, self._chosen = found, None
            self.post_message(self.Suggested(found, None))

    def know(self, known: Known) -> None:
        """Complete the names of these chats from now on."""
        self._known = known
        self._suggest()

    def _choose(self, step: int) -> bool:
        """Select another completion; False where there is none or a message is recalled."""
        if not self._completions or self._recalled is not None:
            return False
        before = self._chosen if self._chosen is not None else (-1 if step > 0 else 0)
        self._chosen = (before + step) % len(self._completions)
        self.post_message(self.Suggested(self._completions, self._chosen))
        return True

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up, select a completion, take back a queued message, or recall an earlier one."""
        if not select and self._choose(-1):
            return
        untouched = not self.text or self._recalled is not None
        if not self.text and (waiting := self.take_back()) is not None:
            self.put(self._pastes.fold(waiting))
        elif not select and untouched and self.cursor_location[0] == 0 and self._sent:
            last = len(self._sent) if self._recalled is None else self._recalled
            self._recall(max(0, last - 1))
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down, select a completion, or recall a later message."""
        if not select and self._choose(1):
            return
        at_end = self.cursor_location[0] == self.document.line_count - 1
        if not select and self._recalled is not None and at_end:
            self._recall(self._recalled + 1)
        else:
            super().action_cursor_down(select)

    def _recall(self, index: int) -> None:
        if index < len(self._sent):
            self._recalled = index
            self.put(self._sent[index])
        else:
            self._recalled = None
            self.clear()

    def on_text_area_changed(self) -> None:
        """Typing over a recalled message makes it a new one."""
        self._suggest()
        if self._recalled is not None and self.text != self._sent[self._recalled]:
            self._recalled = None

    def type(self, event: events.Key) -> None:
        """Handle a key that was pressed while another widget had the focus."""
        self.focus()
        if event.character:
            self.insert(event.character)
