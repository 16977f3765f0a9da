"""The figures below the conversation, and the ways in which the chat screen answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from textual.message import Message
from textual.screen import Screen

from localspec.core.errors import LocalspecError
from tui.controllers.transcript import Transcript
from tui.render.lines import cells
from tui.session.commands import told_here
from tui.session.meter import Meter
from tui.session.session import Session
from tui.session.session_engine import Phase
from tui.session.stats import everyday_line, expert_lines
from tui.terminal.resources import FIGURES_SECONDS, MemoryGauge
from tui.widgets.bars import StatsBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.message import Note
from tui.widgets.token_bar import Details, RoundStrip

TALL = 32
"""Terminal rows from which all figures take two lines, with the strip above them."""
_HINT_SECONDS = 1.5
_READ_PER_SECOND = 30
"""Characters of a hint that are read in a second."""


@dataclass
class ExpertChosen(Message):
    """The user has chosen all figures for the bottom line, or those in everyday words."""

    expert: bool


class StatusArea:
    """Shows the figures of the current reply, or a hint in their place."""

    def __init__(
        self,
        session: Session,
        widgets: tuple[StatsBar, RoundStrip, Details],
        verifier: str,
        wake: Callable[[], None],
        *,
        expert: bool,
    ) -> None:
        """``verifier`` is used until the options are known; ``wake`` starts the refresh timer;
        ``expert`` shows all figures.
        """
        self._session = session
        self._stats, self._strip, self._details = widgets
        self._verifier = verifier
        self._wake = wake
        self._memory = MemoryGauge()
        self._expert = expert
        self._detailed = False
        self._hint_until = self._due = 0.0

    @property
    def verifier(self) -> str:
        """The verifier of the replies."""
        options = self._session.engine.options
        return options.verifier if options is not None else self._verifier

    @property
    def hinting(self) -> bool:
        """Whether a hint is shown that may not have been read yet."""
        return time.monotonic() < self._hint_until

    def has_room(self, text: str) -> bool:
        """Whether a hint fits into the stats line."""
        return cells(text) <= (self._stats.content_size.width or self._stats.app.size.width)

    def show_hint(self, text: str) -> None:
        """Show a hint in place of the figures for as long as it takes to read."""
        self._hint_until = time.monotonic() + _HINT_SECONDS + len(text) / _READ_PER_SECOND
        self._stats.show_hint(text)
        self._wake()

    def clear_hint(self) -> None:
        """Show the figures again."""
        self._hint_until = 0.0
        self._wake()

    def toggle_details(self) -> None:
        """Show or hide the details panel."""
        self._detailed = not self._detailed
        self.arrange()

    def toggle_expert(self) -> None:
        """Show all figures in the bottom line, or those in everyday words."""
        self._expert = not self._expert
        self._stats.post_message(ExpertChosen(self._expert))
        self._due = 0.0
        self.arrange()

    def arrange(self) -> None:
        """Show the panel and the strip where they are wanted and there is room."""
        self._details.display = self._detailed
        self._stats.set_class(self._two, "-two")
        has_rounds = bool(self._session.chat.meter.last_rounds)
        shown = self._detailed or (self._two and has_rounds)
        if shown is not self._strip.display:
            self._strip.display = shown
        self._wake()

    @property
    def _two(self) -> bool:
        """Whether the figures take two lines."""
        return self._expert and self._stats.app.size.height >= TALL

    def refresh(self) -> None:
        """Show the newest figures, unless they were shown a moment ago; a hint stays in place of
        those of the bottom line.
        """
        session, now = self._session, time.monotonic()
        phase = session.engine.phase
        if phase is Phase.REPLYING and now < self._due:
            return
        self._due = now + FIGURES_SECONDS
        meter, settings, info = session.chat.meter, session.settings, session.engine.info
        meter.switched_off = not settings.draft
        judged = f"{self.verifier} strict" if info is not None and info.strict else self.verifier
        grammar = "" if settings.grammar is None else settings.grammar_name
        setting = f"{judged} T {settings.sampling.temperature:g}"
        if grammar:
            setting = f"{grammar} · {setting}"
        if now < self._hint_until:
            pass
        elif phase is Phase.LOADING:
            self._stats.show_loading(session.engine.loading)
        elif phase is Phase.DEAD:
            self._stats.show_stopped()
        else:
            meter.memory = self._memory.look(session.engine.client.pid)
            self._show_figures(meter, setting, grammar)
        self._strip.show_rounds(meter)
        self._details.show_details(meter, setting)

    def _show_figures(self, meter: Meter, setting: str, grammar: str) -> None:
        session, room = self._session, self._stats.room
        if self._expert:
            self._stats.show_figures(expert_lines(meter, setting, room, two=self._two))
            return
        strict = session.engine.info is not None and bool(session.engine.info.strict)
        running = session.chat in session.replies.chats
        line = everyday_line(meter, room, grammar, strict=strict, running=running)
        self._stats.show_figures([line])


T = TypeVar("T")


class Feedback:
    """Hints in the stats line, notes in the conversation, lists over it."""

    def __init__(
        self, screen: Screen[Any], status: StatusArea, transcript: Transcript, log: ChatLog
    ) -> None:
        self._screen, self._status = screen, status
        self._transcript, self._log = transcript, log

    def hint(self, text: str) -> None:
        """Show a hint in place of the figures; one that is too long goes to the conversation."""
        text = told_here(text)
        if self._status.has_room(text):
            self._status.show_hint(text)
        else:
            self._screen.call_later(self._transcript.add_note, text)

    def hint_briefly(self, text: str) -> None:
        """Show as much of a hint as there is room for."""
        self._status.show_hint(text)

    def unhint(self) -> None:
        """Show the figures again."""
        self._status.clear_hint()

    async def note(self, *lines: str, error: bool = False) -> None:
        """Show lines in the conversation."""
        await self._transcript.add(*(Note(line, error=error) for line in lines))

    async def show_list(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Show rows of two columns over the chat."""
        from tui.screens.listing import ListScreen  # not needed for the first frame

        self._screen.app.push_screen(ListScreen(title, rows))

    async def result(self, answer: Awaitable[T]) -> T | None:
        """The result of ``answer``; None, and its error as a note, where it fails."""
        try:
            return await answer
        except LocalspecError as error:
            await self.note(str(error), error=True)
            self._log.anchor()
            return None
