"""Links, code and folded texts of the conversation, reached by keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from textual.content import Content
from textual.screen import Screen
from textual.style import Style

from tui.controllers.feedback import Feedback
from tui.render.code_folds import codes, unfolded
from tui.render.lines import CodeBlock
from tui.render.text import plain
from tui.widgets.calls import CallsView
from tui.widgets.chat_log import ChatLog
from tui.widgets.lines import Lines
from tui.widgets.message import QuestionView, ReplyView, ThoughtView

Foldable = QuestionView | ThoughtView | CallsView


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a reply."""

    lines: Lines
    index: int
    """Index of its line."""
    start: int
    end: int
    address: str


@dataclass(frozen=True, slots=True)
class CodeIn:
    """A block of code of a reply."""

    lines: Lines
    block: CodeBlock


class LogPointer:
    """A cursor over the links, code and folded texts that are mounted, the newest first."""

    def __init__(
        self, screen: Screen[Any], feedback: Feedback, log: ChatLog, open_key: str
    ) -> None:
        self._screen, self._feedback, self._log = screen, feedback, log
        self._open_key = open_key
        self._at: Link | CodeIn | Foldable | None = None

    def move(self, step: int) -> None:
        """Go to the one before (-1) or after (1)."""
        targets = list(self._targets())
        if not targets:
            self._feedback.hint("there is no link, code or folded text in the messages above")
            return
        known = self._at in targets
        place = targets.index(self._at) + step if known and self._at is not None else -1
        self.leave()
        self._at = at = targets[place % len(targets)]
        if isinstance(at, Link):
            at.lines.select_span(at.index, at.start, at.end)
            self._screen.call_after_refresh(at.lines.show_place, at.index, at.start)
            self._feedback.hint(f"{plain(at.address)}  {self._open_key} opens it")
        elif isinstance(at, CodeIn):
            self._show_code(at)
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
        elif isinstance(at, CodeIn):
            at.lines.toggle_code(at.block)
            self._screen.call_after_refresh(self._show_code, at)
        else:
            at.toggle()

    def _show_code(self, at: CodeIn) -> None:
        """Select the code, scroll to its beginning, and say what can be done with it."""
        code = at.lines.code(at.block)
        if code is None or at != self._at:
            return
        self._log.release_anchor()  # else the end of unfolded code would be shown
        at.lines.select_code(at.block)
        self._screen.call_after_refresh(at.lines.show_place, code.first, 0)
        verb = "unfolds" if code.folded else "folds"
        size = f"{len(unfolded(code.lines))} lines of code"
        folds = f"; {self._open_key} {verb} it" if code.foldable else ""
        self._feedback.hint(f"{size}: Ctrl+C copies it{folds}")

    def leave(self) -> None:
        """Remove the cursor."""
        self._screen.clear_selection()
        if isinstance(self._at, Foldable):
            self._at.remove_class("-pointed")
        self._at = None

    def _targets(self) -> Iterator[Link | CodeIn | Foldable]:
        """The targets in the log, the oldest first."""
        for view in self._log.views:
            yield from view.folds()
            if isinstance(view, ReplyView):
                for lines in view.growing:
                    yield from _places(lines)


def _places(lines: Lines) -> Iterator[Link | CodeIn]:
    """The links and blocks of code, from top to bottom."""
    blocks = {code.first: code.block for code in codes(lines.entries)}
    for index, entry in enumerate(lines.entries):
        if index in blocks:
            yield CodeIn(lines, blocks[index])
        content = getattr(entry, "content", None)
        if not isinstance(content, Content):
            continue
        for span in content.spans:
            if isinstance(span.style, Style) and span.style.link:
                yield Link(lines, index, span.start, span.end, span.style.link)
