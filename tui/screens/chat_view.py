"""How a session is shown, one look of a timer at a time. What the person does is in `chat`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Footer

from localspec.core.events import ModelInfo
from localspec.errors import LocalspecError
from tui.input import keymap
from tui.render.lines import cells
from tui.render.welcome import DEMO, TOY, WELCOME
from tui.screens.sized import SizedScreen
from tui.session import status_text
from tui.session.commands import told_here
from tui.session.conversation import Turn
from tui.session.notifications import (
    Asked,
    Died,
    Ended,
    Failed,
    Happening,
    NotOpened,
    Opened,
    Told,
    Turned,
)
from tui.session.open_chat import OpenChat
from tui.session.ports import Phase
from tui.session.session import Session
from tui.terminal import idle_gc
from tui.terminal.process_memory import MemoryGauge
from tui.terminal.refresh_rate import FIGURES_SECONDS, looks_per_second
from tui.widgets.bars import Bar, LegendBar, QueueBar, StatsBar, SuggestBar, TitleBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.message import Help, Note, ReplyView
from tui.widgets.panel import Details, RoundStrip
from tui.widgets.token_bar import TokenBar

_HINT_SECONDS = 1.5
_READ_PER_SECOND = 30
"""Characters of a hint that are read in a second."""
_REST_SECONDS = 3.0
"""After a reply, before the time is used to tidy up."""
TALL = 32
"""Rows from which the figures take two lines and the strip is always shown."""
WIDE = 120
"""Columns from which details stand beside the conversation."""


class Body(Container):
    """The conversation and, below or beside it, the details."""


class ChatView(SizedScreen[None]):
    """Title, conversation, composer, figures."""

    BINDINGS = keymap.CHAT
    AUTO_FOCUS = "Composer"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as below
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high"), (TALL, "-tall")]  # noqa: RUF012 - Textual's own type

    class CannotStart(Message):
        """There is no engine to talk to, and never was."""

        def __init__(self, error: LocalspecError) -> None:
            super().__init__()
            self.error = error

    def __init__(
        self, session: Session, name: str, verifier: str, rebound: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._rebound = rebound
        self.session = session
        self._model_name = name
        self._verifier = verifier
        self._live: ReplyView | None = None
        self._looking = False
        self._changing = asyncio.Lock()  # keys may act while a look waits for a mount
        self._hint_until = self._figures_due = 0.0
        self._memory = MemoryGauge()
        self._detailed = False
        self._shown_phase: tuple[Phase, OpenChat] | None = None
        self._keyed_phase: Phase | None = None
        """In which the keys were asked for last: the footer may do so between two looks."""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        self.take_size(self.app.size)
        yield TitleBar(self._model_name)
        with Body():
            yield ChatLog()
            yield Details(markup=False)
        yield LegendBar()
        yield TokenBar(markup=False)
        yield RoundStrip(markup=False)
        yield QueueBar()
        yield Bar(markup=False, id="pull")
        yield SuggestBar(markup=False)
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
        self._composer.take_back = self.session.take_back
        self._stats = self.query_one(StatsBar)
        self._stats.details_key = self.key_of("chat.details")
        self._strip = self.query_one(RoundStrip)
        self._token_bar = self.query_one(TokenBar)
        self._details = self.query_one(Details)
        self._body = self.query_one(Body)
        self._details.display = self._strip.display = False
        self._suggest_bar = self.query_one(SuggestBar)
        self._legend.display = self._suggest_bar.display = False
        self._pull_bar = self.query_one("#pull", Bar)
        self._queue_bar.display = self._pull_bar.display = False
        if self.session.conversation.turns:
            await self._log.show_turns(self.session.conversation.turns)
            self._composer.remember(turn.text for turn in self.session.chat.questions)
        else:
            await self._welcome()
        self._timer = self._looks(None)
        self._rest = self.set_interval(_REST_SECONDS, self._tidy, pause=True)
        self.session.on_activity = self._wake
        idle_gc.postpone()
        self.run_worker(self.session.run(), name="session")

    # -- looking -------------------------------------------------------------------------------

    def _looks(self, info: ModelInfo | None) -> Timer:
        """As often as is well while this model answers."""
        return self.set_interval(1 / looks_per_second(info), self._tick)

    def _wake(self) -> None:
        self._timer.resume()

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
            await self._catch_up()
            # While the person reads further up, nothing is drawn below; it is caught up with later.
            if self._live is not None and not self._log.reading_back:
                await self._live.sync(status_text.for_text(session))
        self._queue_bar.show(list(session.queue), status_text.in_line(session))
        self._show_figures()
        chats = session.chats
        elsewhere = session.answered not in (None, chats.current)
        chat = (chats.place, len(chats.all))
        branch = session.conversation.place
        self._title_bar.place(chat, chats.current.title, branch, busy=elsewhere)
        shown = (session.phase, chats.current)
        if shown != self._shown_phase or session.phase is not self._keyed_phase:
            self._shown_phase = shown
            self.refresh_bindings()
        if session.idle and time.monotonic() >= self._hint_until:
            self._timer.pause()
            self._rest.reset()
            self._rest.resume()

    def _tidy(self) -> None:
        """Once, when nothing has happened for a while."""
        self._rest.pause()
        if self.session.idle and self.app.screen is self:  # else the person is busy elsewhere
            idle_gc.collect()

    def _show_figures(self) -> None:
        session, now = self.session, time.monotonic()
        speaking = session.phase is Phase.REPLYING
        if now < self._hint_until or (speaking and now < self._figures_due):
            return
        self._figures_due = now + FIGURES_SECONDS
        if session.phase is Phase.LOADING:
            self._stats.show_loading(session.loading)
        elif session.phase is Phase.DEAD:
            self._stats.show_stopped()
        else:
            temperature = session.settings.sampling.temperature
            session.meter.switched_off = not session.settings.draft
            session.meter.memory = self._memory.look(session.engine.pid)
            setting = f"{self.verifier} T {temperature:g}"
            self._stats.show_figures(session.meter, setting, two=self._tall)
            self._strip.show_rounds(session.meter)
            self._details.show_details(session.meter)

    @property
    def verifier(self) -> str:
        """The one that replies are made with."""
        options = self.session.options
        return options.verifier if options is not None else self._verifier

    @property
    def _tall(self) -> bool:
        return self.app.size.height >= TALL

    def fit(self, size: Size) -> None:
        """Show what there is room for."""
        if self.take_size(size):
            # These alone have styles that go by it; all of the messages would take a while.
            sized = (self._title_bar, self._body, self._details, self._composer, self._stats)
            self.app.stylesheet.update_nodes(sized)
        self.query_one(Footer).compact = size.width < 90
        self._show_parts()

    def _show_parts(self) -> None:
        self._details.display = self._detailed
        shown = self._detailed or (self._tall and bool(self.session.meter.last_rounds))
        if shown is not self._strip.display:
            self._strip.display = shown
        self._timer.resume()

    async def _catch_up(self) -> None:
        for happening in self.session.take_happenings():
            await self._show(happening)

    async def _below(self, *widgets: Widget) -> None:
        """Show what is no part of the conversation, below all that has happened so far.

        Else a chat that is still to be shown would take the place of it.
        """
        async with self._changing:
            await self._catch_up()
            for widget in widgets:
                await self._log.add(widget)

    async def _list_below(self, widget: Widget) -> None:
        """Likewise what is read from its beginning."""
        async with self._changing:
            await self._catch_up()
            await self._log.add_list(widget)

    async def _show(self, happening: Happening) -> None:
        match happening:
            case Opened(info):
                self.session.chat.count_context()
                self._timer.stop()
                self._timer = self._looks(info)
                self._title_bar.opened(info)
                self._show_parts()
                for notice in info.notices:
                    await self._log.add(Note(notice))
            case Asked(question, reply):
                await self._show_asked(question, reply)
            case Ended(reply):
                self._show_parts()
                if self._live is not None and self._live.turn is reply:
                    await self._live.sync()
                    self._live = None
            case Turned():
                self._live = None
                self._token_bar.leave()
                await self._show_chat()
            case Told(text):
                await self._log.add(Note(text))
            case Failed() | Died() | NotOpened():
                await self._show_error(happening)

    async def _show_chat(self) -> None:
        """All that was said in the chat that is looked at now, and what is just being said."""
        chat = self.session.chat
        await self._log.show_turns(chat.conversation.turns)
        chat.count_context()
        self._composer.remember(question.text for question in chat.questions)
        if not chat.conversation.turns:
            await self._welcome()
        if chat.speaking is not None:
            self._live = self._log.view_of(chat.speaking)
        self._show_parts()

    async def _welcome(self) -> None:
        options = self.session.options
        model = options.model if options is not None else self._model_name
        text = WELCOME
        if model == DEMO:
            text += "\n" + TOY.format(key=self.key_of("chat.models"))
        await self._log.add(Help(text))

    async def _show_asked(self, question: Turn | None, reply: Turn) -> None:
        if reply not in self.session.conversation.turns:
            return
        # Where the whole conversation was shown a moment ago, they may be on show already.
        if question is not None and not self._log.shows(question):
            await self._log.add_turn(question)
        if not self._log.shows(reply):
            await self._log.add_turn(reply)
        self._live = self._log.view_of(reply)  # None of one that is further up, and over
        self._token_bar.leave()

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
        """Show a line in place of the figures, for as long as it takes to read.

        One that is too long for that goes to the conversation, where the whole of it can be read.
        """
        text = told_here(text)
        if cells(text) > (self._stats.content_size.width or self.app.size.width):
            self.call_later(self._note, text)
        else:
            self.hint_briefly(text)

    def hint_briefly(self, text: str) -> None:
        """Show a line in place of the figures, or as much of it as there is room for."""
        self._hint_until = time.monotonic() + _HINT_SECONDS + len(text) / _READ_PER_SECOND
        self._stats.show_hint(text)
        self._timer.resume()

    async def _note(self, text: str) -> None:
        async with self._changing:
            await self._catch_up()
            await self._log.note(text)

    def unhint(self) -> None:
        """The figures again: what was hinted at is over."""
        self._hint_until = 0.0
        self._timer.resume()

    def key_of(self, name: str) -> str:
        """The key with that id, as people write it."""
        return keymap.shown(self._rebound.get(name, keymap.BY_ID[name].key))
