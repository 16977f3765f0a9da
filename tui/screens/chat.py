"""The chat screen: its layout, its refresh timer, and the messages of its widgets."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer

from localspec.core.errors import LocalspecError
from tui.controllers.chat_actions import ChatActions
from tui.controllers.chat_context import ChatContext, ChatWidgets
from tui.controllers.greeting import Greeting
from tui.controllers.status import TALL, Feedback, StatusArea
from tui.controllers.transcript import Transcript
from tui.input import keymap
from tui.input.completion import wants_chats
from tui.input.message_draft import names_files
from tui.render.text import plain
from tui.screens.sized import DrawnAheadScreen
from tui.session import status_text
from tui.session.notifications import (
    ConversationChanged,
    LoadFailed,
    ModelOpened,
    Notification,
    ReplyEnded,
    ReplyStarted,
)
from tui.session.open_chat import OpenChat
from tui.session.session import Session
from tui.session.session_engine import Phase
from tui.terminal import resources
from tui.terminal.resources import RefreshRate
from tui.widgets.bars import FindInput, SuggestBar, TitleBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.lines import Lines
from tui.widgets.message import ReplyView

_TYPING = frozenset({"enter", "tab", "backspace", "delete", "ctrl+u", "ctrl+w", "ctrl+j"})
"""Keys that go to the composer even where a click has moved the focus away from it."""
_IDLE_SECONDS = 3.0
"""After the last activity, before garbage is collected."""
_REPLIES = 10
"""After so many replies without such a pause it is collected too, once the last one is drawn: the
messages that have left the screen take 0.3 MB each."""
_WIDE = 120
"""Columns from which the details panel is next to the conversation."""


MAKES_REPLIES = "session"
"""Name of the worker without which no message is answered."""


class Body(Container):
    """The conversation, and the details panel below or next to it."""


class ChatScreen(DrawnAheadScreen):
    """Title, conversation, composer and figures of the chat that is shown."""

    BINDINGS = keymap.CHAT
    AUTO_FOCUS = "Composer"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]  # noqa: RUF012 - as below
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high"), (TALL, "-tall")]  # noqa: RUF012 - Textual's own type

    @dataclass
    class CannotStart(Message):
        """The first load failed."""

        error: LocalspecError

    def __init__(
        self,
        session: Session,
        name: str,
        verifier: str,
        rebound: Mapping[str, str],
        *,
        expert: bool = False,
        race: bool = False,
    ) -> None:
        """``name`` is the model's; ``rebound`` maps ids of `keymap` to other keys; ``expert``
        starts with all figures in the bottom line, ``race`` with a race.
        """
        super().__init__()
        self.session = session
        self._race_waits = race
        """Whether to start a race as soon as the model is loaded."""
        self._greeting = Greeting(self, session, name, rebound)
        self._body = Body()
        self._widgets = widgets = ChatWidgets(TitleBar(name))
        widgets.composer.take_back = self._take_back
        self._timer: Timer | None = None
        self._rate = RefreshRate()
        self._refreshing = False
        self._shown_phase: tuple[Phase, OpenChat] | None = None
        self._keyed_phase: Phase | None = None
        """Phase of the last `check_action`: the footer may ask between two refreshes."""
        self._chats_known = False
        """Whether the composer was given the chats for the present word."""
        self._suggested_last: Composer.Suggested | None = None
        self._gathered = 0
        """Replies that have ended since garbage was collected."""
        figures = (widgets.stats, widgets.strip, widgets.details)
        self.status = StatusArea(session, figures, verifier, self._wake, expert=expert)
        self.paint_growth_of(widgets.log)
        self.transcript = Transcript(
            session, widgets.log, self._greeting.text, self._notified, self.painter
        )
        self.feedback = Feedback(self, self.status, self.transcript, widgets.log)
        context = ChatContext(self, session, widgets, self.transcript, self.feedback, rebound)
        self.actions = ChatActions(context, self.status)

    def compose(self) -> ComposeResult:
        """The widgets from top to bottom."""
        self.take_size(self.app.size)
        widgets = self._widgets
        yield widgets.title_bar
        with self._body:
            yield widgets.log
            yield widgets.details
        yield widgets.legend
        yield widgets.token_bar
        yield widgets.strip
        yield widgets.find_bar
        yield widgets.queue_bar
        yield widgets.pull_bar
        yield widgets.suggest_bar
        yield widgets.attach_bar
        yield widgets.permission
        yield widgets.composer
        yield widgets.stats
        yield widgets.keys

    async def on_mount(self) -> None:
        """Show the chat, load the model and start the refresh timer."""
        await self.transcript.start()
        self._widgets.composer.remember(turn.text for turn in self.session.chat.questions)
        self._timer = self._start_timer()
        self._idle_timer = self.set_interval(_IDLE_SECONDS, self._collect_garbage, pause=True)
        self.session.on_activity = self._wake
        resources.postpone_garbage()
        self.run_worker(self.session.replies.run(), name=MAKES_REPLIES)
        self.run_worker(self.session.start_tools(), name="tools")

    async def on_unmount(self) -> None:
        """Pulls and races end with the interface."""
        await self.actions.races.close()
        await self.actions.pulls.close()

    def fit(self, size: Size) -> None:
        """Show what there is room for."""
        widgets = self._widgets
        if self.take_size(size):
            # Only these have styles that depend on the size; updating every message is slow.
            sized = (widgets.title_bar, self._body, widgets.details, widgets.composer)
            self.app.stylesheet.update_nodes((*sized, widgets.stats))
        if widgets.suggest_bar.display:
            self.call_after_refresh(self._show_suggestions)
        self.status.arrange()
        self._refresh_soon()

    # -- refreshing ----------------------------------------------------------------------------

    def _start_timer(self) -> Timer:
        """Refresh as often as is good while this model answers."""
        return self.set_interval(self._rate.interval, self._tick)

    def _wake(self) -> None:
        """Refresh at once, and again until nothing happens any more."""
        if self._timer is not None:
            self._timer.resume()
            self._refresh_soon()

    def _tick(self) -> None:
        if self.session.engine.phase is not Phase.REPLYING or self._rate.due():
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        # A timer's task is cancelled when the screen closes, and cancelling a mount halfway would
        # cancel widgets; so the refresh runs in the screen's own task.
        if not self._refreshing:
            self._refreshing = True
            self.call_later(self._refresh)

    async def _refresh(self) -> None:
        """Show what has changed since the last refresh."""
        self._refreshing = False
        session, widgets, chats = self.session, self._widgets, self.session.chats
        await self.transcript.refresh()
        widgets.queue_bar.show(session.queue, status_text.in_line(session))
        asked = session.chat.question
        widgets.permission.show(self.actions.tools.asked, self.actions.tools.keys, self.app.size)
        if asked is not None:
            asked.drawn()
        self.status.refresh()
        place = (chats.place, len(chats.all))
        branch = session.chat.conversation.place
        chat = chats.current
        title = "" if chat.fresh else chat.title
        work = session.work_elsewhere
        widgets.title_bar.place(place, title, branch, chat.conversation.system, elsewhere=work)
        phase = session.engine.phase
        # Drawing it twice a second would cost a third of what a reply does.
        widgets.composer.cursor_blink = phase is not Phase.REPLYING
        if (phase, chats.current) != self._shown_phase or phase is not self._keyed_phase:
            self._shown_phase = (phase, chats.current)
            self.refresh_bindings()
        if session.idle and not self.status.hinting and self._timer is not None:
            self._timer.pause()
            self._idle_timer.reset()
            self._idle_timer.resume()

    def _take_back(self) -> str | None:
        text = self.session.take_back()
        if self.session.chat.editing is not None:  # it was a changed question
            self.actions.branches.show_editing()
        return text

    def _collect_garbage(self) -> None:
        """Once, when nothing has happened for a while."""
        self._idle_timer.pause()
        if self.session.idle and self.app.screen is self:  # on another screen the user is busy
            self._gathered = 0
            resources.collect_garbage()

    def on_screen_resume(self) -> None:
        """What waited while another screen was shown comes now."""
        self._wake()

    def _reply_ended(self) -> None:
        self._gathered += 1
        if self._gathered >= _REPLIES:
            self._gathered = 0
            self.call_after_refresh(resources.collect_new_garbage)

    def _notified(self, notification: Notification) -> None:
        """Update what is not part of the log, before the log shows the notification."""
        match notification:
            case ModelOpened(info):
                self.session.chat.count_context()
                if self._timer is not None:
                    self._timer.stop()
                self._rate.model_opened(info)
                self._timer = self._start_timer()
                self._widgets.title_bar.opened(info, self.session.engine.client.server)
                self.status.arrange()
                if self._race_waits:
                    self._race_waits = False
                    self.actions.races.open()
            case ReplyStarted(_, reply) if reply in self.session.chat.conversation.turns:
                self.actions.inspector.leave_tokens()
            case ReplyEnded():
                self.status.arrange()
                self._greeting.reply_ended()
                self._reply_ended()
            case ConversationChanged():
                self.actions.inspector.leave_tokens()
                self.session.chat.count_context()
                self._widgets.composer.remember(t.text for t in self.session.chat.questions)
                self.status.arrange()
            case LoadFailed(error) if self.session.engine.info is None:
                self.post_message(self.CannotStart(error))

    # -- keys and commands ---------------------------------------------------------------------

    async def action_command(self, name: str, *arguments: int) -> None:
        """Carry out a key of `keymap.CHAT`."""
        await self.actions.press(name, *arguments)

    def action_page(self, step: int) -> None:
        """Scroll the conversation by a page."""
        log = self._widgets.log
        if step < 0:
            log.scroll_page_up()
        else:
            log.scroll_page_down()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show keys only where they do something."""
        self._keyed_phase = self.session.engine.phase
        return action != "command" or self.actions.enabled(parameters[0])

    def does(self, binding: Binding) -> str:
        """What a key does now, in a word."""
        leaves = binding.id == "chat.stop" and self.actions.branches.editing
        return "Leave" if leaves else binding.description

    def on_key(self, event: events.Key) -> None:
        """Typing goes to the composer, wherever the focus is."""
        composer = self._widgets.composer
        if composer.has_focus or isinstance(self.focused, FindInput):
            return
        if event.is_printable:
            event.stop()
            composer.type(event)
        elif event.key in _TYPING:
            event.stop()
            composer.focus()
            composer.post_message(events.Key(event.key, event.character))

    # -- messages of the widgets ---------------------------------------------------------------

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        self.actions.runner.send(event.text, event.pasted, event.obeyed.set)

    @on(Composer.Changed)
    def _typed(self) -> None:
        self.session.replies.titles.touch()
        wanted = wants_chats(self._widgets.composer.text)
        if wanted and not self._chats_known:
            self.run_worker(self._complete_chats(), group="complete", exclusive=True)
        self._chats_known = wanted
        if names_files(self._widgets.composer.text) or self._widgets.attach_bar.display:
            self._measure_files()

    @work(group="attached", exclusive=True)
    async def _measure_files(self) -> None:
        bar, composer = self._widgets.attach_bar, self._widgets.composer
        line = await self.actions.files.measured(composer.text, composer.pasted(composer.text))
        bar.display = bool(line)
        bar.show(Content.styled(plain(line), "$quiet"))

    async def _complete_chats(self) -> None:
        self._widgets.composer.know(await self.actions.library.known())

    @on(Composer.Suggested)
    def _suggested(self, event: Composer.Suggested) -> None:
        self._suggested_last = event
        self._show_suggestions()

    def _show_suggestions(self) -> None:
        """List what completes the word, so that in a low terminal too all else is seen: the layout
        gives the conversation a row at least.
        """
        event, bar = self._suggested_last, self._widgets.suggest_bar
        if event is None:
            return
        others = (part for part in self.children if part.display and part not in (bar, self._body))
        room = self.size.height - 1 - sum(part.outer_size.height for part in others)
        bar.show(event.found, event.chosen, room)

    @on(SuggestBar.Picked)
    def _suggestion_picked(self, event: SuggestBar.Picked) -> None:
        self._widgets.composer.take(event.index)

    @on(Composer.Rejected)
    def _rejected(self, event: Composer.Rejected) -> None:
        self.feedback.hint(event.text)

    @on(FindInput.Changed)
    def _searched(self, event: FindInput.Changed) -> None:
        self.actions.finder.search(event.value)

    @on(FindInput.Submitted)
    def _searched_on(self) -> None:
        self.actions.finder.step(-1)

    @on(FindInput.Stepped)
    def _search_stepped(self, event: FindInput.Stepped) -> None:
        self.actions.finder.step(event.step)

    @on(FindInput.Left)
    def _search_left(self) -> None:
        self.actions.finder.close()

    @on(ChatLog.OlderWanted)
    async def _older_wanted(self) -> None:
        await self.transcript.load_older()

    @on(ChatLog.NewerWanted)
    async def _newer_wanted(self) -> None:
        await self.transcript.load_newer()

    @on(Lines.LinkClicked)
    def _link(self, event: Lines.LinkClicked) -> None:
        # The model writes the links; only web pages are opened, never files or programs.
        if event.href.startswith(("https://", "http://")):
            try:
                self.app.open_url(event.href)
            except webbrowser.Error:
                self.feedback.hint(f"no browser was found here to open {event.href}")

    @on(ReplyView.TokenClicked)
    def _token_clicked(self, event: ReplyView.TokenClicked) -> None:
        self.actions.inspector.go(event.turn, event.index)
