"""Pointing at messages of the conversation, and searching them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from textual.content import Content
from textual.style import Style
from textual.worker import WorkType

from localspec.chats.pictures import shown
from localspec.chats.words import terms
from tui.controllers.chat_context import ChatContext
from tui.render.lines import CodeBlock, codes, unfolded
from tui.render.text import plain
from tui.session.conversation import ChatTurn
from tui.widgets.calls import FoldedText
from tui.widgets.lines import Lines
from tui.widgets.message import QuestionView, ReplyView

Foldable = QuestionView | FoldedText


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

    def __init__(self, context: ChatContext) -> None:
        self._screen, self._feedback = context.screen, context.feedback
        self._log = context.widgets.log
        self._open_key = context.key("chat.open_pointed")
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


_LOOK_SECONDS, _SETTLE_LOOKS = 0.02, 150
"""How often, and how many times, a message is asked whether it is typeset."""


class MessageFinder:
    """Goes from hit to hit; the hit is marked as a selection, so Ctrl+C copies it."""

    def __init__(self, context: ChatContext) -> None:
        self._context, self._screen, self._session = context, context.screen, context.session
        self._bar = context.widgets.find_bar
        self._hits: list[tuple[ChatTurn, int]] = []
        """Message, and number of the place in it."""
        self._at = 0
        self._words = ""

    def open(self) -> None:
        """Show the search; where the user types in it, leave it."""
        if self._bar.input.has_focus:
            self.close()
        else:
            self._bar.open()

    def close(self) -> None:
        """Hide the search; the conversation stays where it is."""
        self._bar.display = False
        self._screen.clear_selection()
        self._mark_all("")
        self._context.widgets.composer.focus()

    def search(self, words: str) -> None:
        """Find all places, and go to the newest; nothing where the search was left since."""
        if not self._bar.display:
            return
        self._words = words.strip()
        self._mark_all(self._words)
        pattern = re.compile(re.escape(self._words), re.IGNORECASE)
        self._hits = [
            (turn, number)
            for turn in (self._session.chat.conversation.turns if self._words else ())
            for number, _ in enumerate(pattern.finditer(plain(shown(turn.text))))
        ]
        self._at = len(self._hits) - 1
        self._go()

    def step(self, step: int) -> None:
        """Go to the place before or after; after the last comes the first."""
        if self._hits and self._bar.display:
            self._at = (self._at + step) % len(self._hits)
            self._go()

    def _go(self) -> None:
        if not self._hits:
            self._bar.show_count("not found" if self._words else "")
            self._screen.clear_selection()
            return
        self._bar.show_count(f"{self._at + 1} of {len(self._hits)}")
        turn, number = self._hits[self._at]
        words = self._words

        async def show() -> None:
            await self._show(turn, words, number, wanted=lambda: self._bar.display)

        # Not a coroutine, which would never run where it is left before.
        work: WorkType[None] = show
        self._screen.run_worker(work, group="find", exclusive=True)

    async def show_message(self, message: int, words: str) -> None:
        """Show a message of the open chat, on its branch, with the words of a search marked."""
        turn = self._session.show_message(message)
        if turn is None:
            replying = "the model is replying in this chat; Esc stops it, and then it can be shown"
            gone = "the message is not in this chat any more"
            self._context.feedback.hint(replying if self._session.replying else gone)
            return
        found = next((t for t in [words, *terms(words)] if _finds(t, shown(turn.text))), "")
        await self._show(turn, found, 0)

    async def _show(
        self, turn: ChatTurn, words: str, number: int, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Show a message, and mark a place in it, if that is ``wanted`` still once it is there. A
        message is shown to the end: half of it mounted, the conversation would stay empty.
        """
        view = await self._context.transcript.show_turn(turn)
        if self._bar.display:
            self._mark_all(self._words)  # what was not mounted before
        if view is None or not words:
            return
        for _ in range(_SETTLE_LOOKS):
            if view.settled:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        places = [
            (lines, index, match.span())
            for lines in view.texts()
            for index, entry in enumerate(lines.entries)
            for match in re.finditer(re.escape(words), entry.text, re.IGNORECASE)
        ]
        if places and wanted():  # marks of Markdown and thoughts are not on the screen
            self._mark(*places[min(number, len(places) - 1)])

    def _mark_all(self, words: str) -> None:
        """Mark all places in the messages that are mounted."""
        for lines in self._context.widgets.log.query(Lines):
            lines.mark(words)

    def _mark(self, lines: Lines, index: int, span: tuple[int, int]) -> None:
        lines.select_span(index, *span)
        self._screen.call_after_refresh(lines.show_place, index, span[0])


def _finds(words: str, text: str) -> bool:
    return bool(words) and re.search(re.escape(words), text, re.IGNORECASE) is not None
