"""Links and folded texts of the conversation, reached by keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from textual.content import Content
from textual.screen import Screen
from textual.style import Style

from tui.controllers.feedback import Feedback
from tui.render.text import plain
from tui.widgets.chat_log import ChatLog
from tui.widgets.lines import Lines
from tui.widgets.message import QuestionView, ReplyView, ThoughtView

Foldable = QuestionView | ThoughtView


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a reply."""

    lines: Lines
    index: int
    """Index of its line."""
    start: int
    end: int
    address: str


class LogPointer:
    """A cursor over the links and folded texts that are mounted, the newest first."""

    def __init__(
        self, screen: Screen[Any], feedback: Feedback, log: ChatLog, open_key: str
    ) -> None:
        self._screen, self._feedback, self._log = screen, feedback, log
        self._open_key = open_key
        self._at: Link | Foldable | None = None

    def move(self, step: int) -> None:
        """Go to the one before (-1) or after (1)."""
        targets = list(self._targets())
        if not targets:
            self._feedback.hint("there is no link or folded text in the messages above")
            return
        known = self._at in targets
        place = targets.index(self._at) + step if known and self._at is not None else -1
        self.leave()
        self._at = at = targets[place % len(targets)]
        if isinstance(at, Link):
            at.lines.select_span(at.index, at.start, at.end)
            self._screen.call_after_refresh(at.lines.show_place, at.index, at.start)
            self._feedback.hint(f"{plain(at.address)}  {self._open_key} opens it")
        else:
            at.add_class("-pointed")
            self._log.release_anchor()
            self._log.scroll_to_widget(at, animate=False)
            self._feedback.hint(f"{self._open_key} folds or unfolds this")

    def open(self) -> None:
        """Open the link, or fold or unfold the text, under the cursor."""
        at = self._at
        if at is None or at not in list(self._targets()):
            self.move(-1)
        elif isinstance(at, Link):
            at.lines.action_link(at.address)
        else:
            at.toggle()

    def leave(self) -> None:
        """Remove the cursor."""
        self._screen.clear_selection()
        if self._at is not None and not isinstance(self._at, Link):
            self._at.remove_class("-pointed")
        self._at = None

    def _targets(self) -> Iterator[Link | Foldable]:
        """From the oldest to the newest."""
        for view in self._log.views:
            yield from view.folds()
            if isinstance(view, ReplyView):
                for lines in view.texts():
                    yield from _links(lines)


def _links(lines: Lines) -> Iterator[Link]:
    for index, entry in enumerate(lines.entries):
        content = getattr(entry, "content", None)
        if not isinstance(content, Content):
            continue
        for span in content.spans:
            if isinstance(span.style, Style) and span.style.link:
                yield Link(lines, index, span.start, span.end, span.style.link)
