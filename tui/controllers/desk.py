"""The widgets of the chat screen, and what its controllers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen

from tui.controllers.status import Feedback
from tui.controllers.transcript import Transcript
from tui.input import keymap
from tui.session.session import Session
from tui.widgets.bars import Bar, FindBar, LegendBar, QueueBar, StatsBar, SuggestBar, TitleBar
from tui.widgets.calls import PermissionBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.key_bar import KeyBar
from tui.widgets.token_bar import Details, RoundStrip, TokenBar


@dataclass(frozen=True, slots=True)
class ChatWidgets:
    """One of each, from top to bottom; those that are not always shown are hidden at first."""

    title_bar: TitleBar
    log: ChatLog
    details: Details
    legend: LegendBar
    token_bar: TokenBar
    strip: RoundStrip
    find_bar: FindBar
    queue_bar: QueueBar
    pull_bar: Bar
    suggest_bar: SuggestBar
    attach_bar: Bar
    permission: PermissionBar
    composer: Composer
    stats: StatsBar
    keys: KeyBar

    @classmethod
    def make(cls, name: str, take_back: Callable[[], str | None]) -> ChatWidgets:
        """Widgets for a model's ``name``; ``take_back`` returns the last queued message."""
        made = cls(
            TitleBar(name),
            ChatLog(),
            Details(markup=False),
            LegendBar(),
            TokenBar(markup=False),
            RoundStrip(markup=False),
            FindBar(),
            QueueBar(),
            Bar(markup=False, id="pull"),
            SuggestBar(markup=False),
            Bar(markup=False, id="attached"),
            PermissionBar(),
            Composer(),
            StatsBar(),
            KeyBar(),
        )
        made.composer.take_back = take_back
        hidden = (made.details, made.legend, made.strip, made.find_bar, made.queue_bar)
        for widget in (*hidden, made.pull_bar, made.suggest_bar, made.attach_bar):
            widget.display = False
        return made


@dataclass(frozen=True, slots=True)
class Desk:
    """What the controllers of the chat screen work with."""

    screen: Screen[Any]
    session: Session
    widgets: ChatWidgets
    transcript: Transcript
    feedback: Feedback
    rebound: Mapping[str, str]
    """Other keys by the ids of `keymap`."""

    def key(self, name: str) -> str:
        """The key with that id, as users write it."""
        return keymap.key_of(name, self.rebound)
