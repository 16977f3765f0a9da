"""The widgets of the chat screen, and what its controllers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    log: ChatLog = field(default_factory=ChatLog)
    details: Details = field(default_factory=Details)
    legend: LegendBar = field(default_factory=LegendBar)
    token_bar: TokenBar = field(default_factory=TokenBar)
    strip: RoundStrip = field(default_factory=RoundStrip)
    find_bar: FindBar = field(default_factory=FindBar)
    queue_bar: QueueBar = field(default_factory=QueueBar)
    pull_bar: Bar = field(default_factory=lambda: Bar(id="pull"))
    suggest_bar: SuggestBar = field(default_factory=SuggestBar)
    attach_bar: Bar = field(default_factory=lambda: Bar(id="attached"))
    permission: PermissionBar = field(default_factory=PermissionBar)
    composer: Composer = field(default_factory=Composer)
    stats: StatsBar = field(default_factory=StatsBar)
    keys: KeyBar = field(default_factory=KeyBar)

    def __post_init__(self) -> None:
        hidden = (self.details, self.legend, self.strip, self.find_bar, self.queue_bar)
        for widget in (*hidden, self.pull_bar, self.suggest_bar, self.attach_bar):
            widget.display = False


@dataclass(frozen=True, slots=True)
class ChatContext:
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
