"""The chat screen: shows a session, one look of a timer at a time."""

from __future__ import annotations

import asyncio
import time

from textual import events, on
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Markdown

from localspec.errors import LocalspecError
from tui import commands, keymap
from tui.commands import Command, CommandError
from tui.conversation import Turn
from tui.session import (
    Asked,
    Died,
    Ended,
    Failed,
    Happening,
    NotOpened,
    Opened,
    Phase,
    Session,
    Told,
    Turned,
)
from tui.welcome import WELCOME
from tui.widgets.bars import LegendBar, QueueBar, StatsBar, TitleBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.message import Columns, Help, Note, ReplyView

LOOKS_PER_SECOND = 16
"""Often enough to read along; each look costs about a millisecond whatever came in between."""
_HINT_SECONDS = 2.0


class ChatScreen(Screen[None]):
    """Title, conversation, composer, figures."""

    BINDINGS = keymap.CHAT
    AUTO_FOCUS = "Composer"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012 - Textual's own type

    class CannotStart(Message):
        """There is no engine to talk to, and never was."""

        def __init__(self, error: LocalspecError) -> None:
            super().__init__()
            self.error = error

    def __init__(self, session: Session, name: str, verifier: str) -> None:
        super().__init__()
        self.session = session
        self._model_name = name
        self._verifier = verifier
        self._live: ReplyView | None = None
        self._looking = False
        self._changing = asyncio.Lock()  # keys may act while a look waits for a mount
        self._hint_until = 0.0
        self._shown_phase: Phase | None = None

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield TitleBar(self._model_name)
        yield ChatLog()
        yield LegendBar()
        yield QueueBar()
        yield Composer()
        yield StatsBar()
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Begin to load and to look."""
        self._title_bar = self.query_one(TitleBar)
        self._log = self.query_one(ChatLog)
        self._legend = self.query_one(LegendBar)
        self._queue_bar = self.query_one(QueueBar)
        self._composer = self.query_one(Composer)
        self._stats = self.query_one(StatsBar)
        self._legend.display = False
        self._queue_bar.display = False
        if self.session.conversation.turns:
            await self._log.show_turns(self.session.conversation.turns)
        else:
            await self._log.add(Help(WELCOME))
        self._timer = self.set_interval(1 / LOOKS_PER_SECOND, self._tick)
        self.session.on_activity = self._timer.resume
        self.run_worker(self.session.run(), name="session")

    # -- looking -------------------------------------------------------------------------------

    def _tick(self) -> None:
        # A timer's task is cancelled when the screen closes, and cancelling a mount halfway would
        # cancel widgets; so the looking is done by the screen itself.
        if not self._looking:
            self._looking = True
            self.call_later(self._look)

    async def _look(self) -> None:
        """Show what has changed since the last look."""
        self._looking = False
        session = self.session
        async with self._changing:
            for happening in session.take_happenings():
                await self._show(happening)
            if self._live is not None:
                await self._live.sync(self._waiting())
        self._queue_bar.show(list(session.queue), self._why_waiting())
        self._show_figures()
        if session.phase is not self._shown_phase:
            self._shown_phase = session.phase
            self.refresh_bindings()
        if session.idle and time.monotonic() >= self._hint_until:
            self._timer.pause()

    def _show_figures(self) -> None:
        session = self.session
        if time.monotonic() < self._hint_until:
            return
        if session.phase is Phase.LOADING:
            self._stats.show_loading(session.loading)
        elif session.phase is Phase.DEAD:
            self._stats.show_stopped()
        else:
            temperature = session.settings.sampling.temperature
            self._stats.show_figures(session.meter, f"{self._verifier} T {temperature:g}")

    def _waiting(self) -> str:
        reading = self.session.reading
        if reading is not None and reading.total - reading.cached > 1:
            return f"reading {reading.done}/{reading.total}"
        return "…"

    def _why_waiting(self) -> str:
        match self.session.phase:
            case Phase.LOADING:
                return "sent when the model is ready"
            case Phase.DEAD:
                return "sent when the engine runs again"
            case _:
                return "sent next"

    async def _show(self, happening: Happening) -> None:
        match happening:
            case Opened(info):
                self._title_bar.opened(info)
                for notice in info.notices:
                    await self._log.add(Note(notice))
            case Asked(question, reply):
                await self._show_asked(question, reply)
            case Ended(reply):
                if self._live is not None and self._live.turn is reply:
                    await self._live.sync()
                    self._live = None
            case Turned():
                self._live = None
                await self._log.show_turns(self.session.conversation.turns)
            case Told(text):
                await self._log.add(Note(text))
            case Failed() | Died() | NotOpened():
                await self._show_error(happening)

    async def _show_asked(self, question: Turn | None, reply: Turn) -> None:
        if reply not in self.session.conversation.turns:
            return
        if question is not None:
            await self._log.add_turn(question)
        view = await self._log.add_turn(reply)
        assert isinstance(view, ReplyView)
        self._live = view

    async def _show_error(self, happening: Failed | Died | NotOpened) -> None:
        error = happening.error
        if isinstance(happening, NotOpened) and self.session.info is None:
            # The first time, nothing can be done from in here.
            self.post_message(self.CannotStart(error))
            return
        line = str(error)
        if not isinstance(happening, Failed):
            line += "\nThe conversation is kept. Press Ctrl+R to start the engine again."
        await self._log.add(Note(line, error=True))

    def hint(self, text: str) -> None:
        """Show a line for two seconds in place of the figures."""
        self._hint_until = time.monotonic() + _HINT_SECONDS
        self._stats.show_hint(text)
        self._timer.resume()

    # -- what the person does ------------------------------------------------------------------

    @on(Composer.Sent)
    async def _sent(self, event: Composer.Sent) -> None:
        try:
            command = commands.parse(event.text.strip())
        except CommandError as error:
            self.hint(str(error))
            return
        self._composer.accept()
        self._log.anchor()
        if command is None:
            self.session.send(event.text.strip("\n"))
        else:
            await self._run_command(command)

    async def _run_command(self, command: Command) -> None:
        match command.name, command.value:
            case "help", _:
                await self.action_help()
            case "new", _:
                await self.action_new()
            case "colours", _:
                await self.action_colours()
            case "copy", _:
                self.action_copy()
            case "quit", _:
                await self.app.action_quit()
            case _:
                await self._log.add(Note(self.session.change(command)))
                self._timer.resume()

    @on(Composer.Paged)
    def _paged(self, event: Composer.Paged) -> None:
        if event.direction < 0:
            self._log.scroll_page_up()
        else:
            self._log.scroll_page_down()

    @on(ChatLog.OlderWanted)
    async def action_older(self) -> None:
        """Load older messages."""
        async with self._changing:
            await self._log.load_older()

    @on(Markdown.LinkClicked)
    def _link(self, event: Markdown.LinkClicked) -> None:
        # A model writes the links; only pages are opened, never files or programs.
        if event.href.startswith(("https://", "http://")):
            self.app.open_url(event.href)

    def on_key(self, event: events.Key) -> None:
        """Typing goes to the composer, wherever the focus is."""
        if event.is_printable and not self._composer.has_focus:
            event.stop()
            self._composer.type(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show keys only where they do something."""
        del parameters
        if action == "stop":
            return self.session.phase is Phase.REPLYING
        if action == "restart":
            return self.session.phase is Phase.DEAD
        return True

    def action_stop(self) -> None:
        """Stop the reply and keep what was said."""
        self.session.stop()

    async def action_colours(self) -> None:
        """Show where each token came from, or Markdown again."""
        async with self._changing:
            colours = not self._log.colours
            self._legend.display = colours
            await self._log.set_colours(colours)

    async def action_new(self) -> None:
        """Start a new chat."""
        async with self._changing:
            self._live = None
            self.session.new()
            await self._log.clear()
            await self._log.add(Help(WELCOME))
        self._composer.focus()

    def action_restart(self) -> None:
        """Start the engine again."""
        self.session.restart()

    async def action_help(self) -> None:
        """List keys and commands in the conversation."""
        typed = [(spec.usage, spec.help) for spec in commands.SPECS.values()]
        await self._log.add(Columns([*keymap.HELP, ("", ""), *typed]))
        self._log.anchor()

    def action_copy(self) -> None:
        """Copy the last reply to the clipboard."""
        reply = self.session.conversation.last_reply
        if reply is None:
            self.hint("there is no reply to copy yet")
        else:
            self.app.copy_to_clipboard(reply.text)
            self.hint("copied the last reply")

    def action_scroll_home(self) -> None:
        """To the oldest message."""
        self._log.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """To the newest message."""
        self._log.anchor()
