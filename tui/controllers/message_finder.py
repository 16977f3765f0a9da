"""The search within the chat that is shown, and messages found in saved chats."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from textual.screen import Screen

from localspec.chats.pictures import shown
from localspec.chats.words import terms
from tui.controllers.transcript import Transcript
from tui.render.text import plain
from tui.session.conversation import ChatTurn
from tui.session.session import Session
from tui.widgets.chat_log import ChatLog
from tui.widgets.composer import Composer
from tui.widgets.find_bar import FindBar
from tui.widgets.lines import Lines

_LOOK_SECONDS, _SETTLE_LOOKS = 0.02, 150
"""How often, and how many times, a message is asked whether it is typeset."""


class MessageFinder:
    """Goes from hit to hit; the hit is marked as a selection, so Ctrl+C copies it."""

    def __init__(
        self,
        screen: Screen[Any],
        session: Session,
        transcript: Transcript,
        composer: Composer,
        bar: FindBar,
    ) -> None:
        self._screen, self._session, self._transcript = screen, session, transcript
        self._composer, self._bar = composer, bar
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
        self._composer.focus()

    def search(self, words: str) -> None:
        """Find all places, and go to the newest."""
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
        if self._hits:
            self._at = (self._at + step) % len(self._hits)
            self._go()

    def _go(self) -> None:
        if not self._hits:
            self._bar.show_count("not found" if self._words else "")
            self._screen.clear_selection()
            return
        self._bar.show_count(f"{self._at + 1} of {len(self._hits)}")
        turn, number = self._hits[self._at]
        self._screen.run_worker(self._show(turn, self._words, number), group="find", exclusive=True)

    async def show_message(self, message: int, words: str) -> None:
        """Show a message of the open chat, on its branch, with the words of a search marked."""
        turn = self._session.show_message(message)
        if turn is None:
            return
        found = next((t for t in [words, *terms(words)] if _finds(t, shown(turn.text))), "")
        await self._show(turn, found, 0)

    async def _show(self, turn: ChatTurn, words: str, number: int) -> None:
        view = await self._transcript.show_turn(turn)
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
        if places:  # marks of Markdown and thoughts are not on the screen
            self._mark(*places[min(number, len(places) - 1)])

    def _mark_all(self, words: str) -> None:
        """Mark all places in the messages that are mounted."""
        for lines in self._screen.query_one(ChatLog).query(Lines):
            lines.mark(words)

    def _mark(self, lines: Lines, index: int, span: tuple[int, int]) -> None:
        lines.select_span(index, *span)
        self._screen.call_after_refresh(lines.show_place, index, span[0])


def _finds(words: str, text: str) -> bool:
    return bool(words) and re.search(re.escape(words), text, re.IGNORECASE) is not None
