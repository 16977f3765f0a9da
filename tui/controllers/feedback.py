"""The ways in which the chat screen answers a key or a command."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from textual.screen import Screen

from localspec.errors import LocalspecError
from tui.controllers.status_area import StatusArea
from tui.controllers.transcript import Transcript
from tui.session.commands import told_here
from tui.widgets.chat_log import ChatLog
from tui.widgets.message import Note

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
