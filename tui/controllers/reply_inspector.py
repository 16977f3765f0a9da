"""A closer look at replies: origins, single tokens, the comparison with plain decoding, copies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from textual.message import Message

from localspec.core.errors import LocalspecError
from tui.controllers.chat_context import ChatContext
from tui.session import status_text
from tui.session.conversation import ChatTurn
from tui.widgets.message import ReplyView

_REST_SECONDS = 0.12
"""How long the cursor rests on a token before the models are asked about it."""


@dataclass
class Copied(Message):
    """The user copies a text."""

    text: str
    what: str
    """Its name."""


class ReplyInspector:
    """Shows origins as colours, moves a cursor over tokens, and repeats a reply plainly."""

    def __init__(self, context: ChatContext) -> None:
        self._context, self._screen, self._session = context, context.screen, context.session
        self._feedback, self._log = context.feedback, context.widgets.log
        self._token_bar = context.widgets.token_bar

    async def toggle_colours(self) -> None:
        """Show where each token came from, or Markdown again."""
        async with self._context.transcript.changing:
            colours = not self._log.colours
            self._context.widgets.legend.display = colours
            await self._log.set_colours(colours)
            if not colours:
                self.leave_tokens()
                for view in self._log.query(ReplyView):
                    view.unmark()

    # -- the token cursor ----------------------------------------------------------------------

    def leave_tokens(self) -> None:
        """Hide the token cursor."""
        self._token_bar.leave()

    async def move(self, step: int) -> None:
        """Move the cursor over the tokens of the reply it is in, or of the last one."""
        turn = self._token_bar.turn or self._session.chat.conversation.last_reply
        if turn is None or self._log.view_of(turn) is None or not turn.tokens or turn.end is None:
            unknown = "the tokens of this reply are not known"
            self._feedback.hint(status_text.why_not(self._session) or unknown)
            return
        if not self._log.colours:
            await self.toggle_colours()
        self._token_bar.move(turn, step)
        self._inspect(turn)

    def go(self, turn: ChatTurn, index: int) -> None:
        """Move the cursor to one token of a finished reply."""
        if turn.end is not None:
            self._token_bar.go(turn, index)
            self._inspect(turn)

    def _inspect(self, turn: ChatTurn) -> None:
        """Mark the token under the cursor, and ask the models about it."""
        for view in self._log.query(ReplyView):
            if view.turn is turn:
                view.mark(self._token_bar.span)
            else:
                view.unmark()
        self._screen.run_worker(self._examine(turn), group="examine", exclusive=True)

    async def _examine(self, turn: ChatTurn) -> None:
        await asyncio.sleep(_REST_SECONDS)
        try:
            found = await self._session.examine(turn, self._token_bar.index)
        except LocalspecError as error:
            self._feedback.hint(str(error))
            if self._token_bar.turn is turn:
                self._token_bar.unknown("p and q are not known")
            return
        if self._token_bar.turn is not turn:
            return  # the cursor has left meanwhile
        if found is None:
            self._token_bar.unknown(status_text.why_not(self._session))
        else:
            self._token_bar.fill(found)

    # -- whole replies -------------------------------------------------------------------------

    def compare(self, verifier: str) -> None:
        """Repeat the last reply without drafting and show both."""
        from tui.screens.compare import CompareScreen  # not needed for the first frame

        session = self._session
        try:
            comparison = session.compare()
        except LocalspecError as error:
            self._feedback.hint(str(error))
            return
        if comparison is None:
            unknown = "there is no reply that can be repeated"
            self._feedback.hint(status_text.why_not(session) or unknown)
            return

        def closed(_: None) -> None:
            comparison.left = True
            if not comparison.over:  # and nothing else is: a tool may ask or run meanwhile
                comparison.stop()

        self._screen.app.push_screen(CompareScreen(comparison, verifier), closed)

    def copy(self, *, code: bool) -> None:
        """Copy the last reply, or its last code block."""
        from tui.render.markdown_parser import code_blocks

        turns = reversed(self._session.chat.conversation.turns)
        text = next((t.said for t in turns if t.role == "assistant" and t.said), None)
        blocks = code_blocks(text) if text is not None and code else []
        if text is None:
            self._feedback.hint("there is no reply to copy yet")
        elif code and not blocks:
            self._feedback.hint("the last reply has no code block")
        else:
            what = f"the last {'code block' if code else 'reply'}"
            self._screen.post_message(Copied(blocks[-1] if code else text, what))
