"""The chat screen's tokens: where each came from, and what stood behind one."""

from __future__ import annotations

import asyncio

from textual import on

from localspec.errors import LocalspecError
from tui.screens.chat_models import ChoosingView
from tui.session import status_text
from tui.session.conversation import Turn
from tui.widgets.message import ReplyView

_REST_SECONDS = 0.12
"""How long the cursor rests on a token before the models are asked about it."""


class TokensView(ChoosingView):
    """Origins as colours, and a cursor over the tokens of a reply."""

    async def action_colours(self) -> None:
        """Show where each token came from, or Markdown again."""
        async with self._changing:
            colours = not self._log.colours
            self._legend.display = colours
            await self._log.set_colours(colours)
            if not colours:
                self._token_bar.leave()
                for view in self._log.query(ReplyView):
                    view.unmark()

    async def action_token(self, step: int) -> None:
        """Move the cursor over the tokens of the reply it is in, or of the last one."""
        turn = self._token_bar.turn or self.session.conversation.last_reply
        if turn is None or self._log.view_of(turn) is None or not turn.tokens or turn.end is None:
            unknown = "there is no reply here whose tokens are known"
            self.hint(status_text.why_not(self.session) or unknown)
            return
        if not self._log.colours:
            await self.action_colours()
        self._token_bar.move(turn, step)
        self._look_at_token(turn)

    @on(ReplyView.TokenClicked)
    def _token_clicked(self, event: ReplyView.TokenClicked) -> None:
        if event.turn.end is not None:
            self._token_bar.go(event.turn, event.index)
            self._look_at_token(event.turn)

    def _look_at_token(self, turn: Turn) -> None:
        """Mark the token that the cursor is on, and ask about it."""
        for view in self._log.query(ReplyView):
            if view.turn is turn:
                view.mark(self._token_bar.span)
            else:
                view.unmark()
        self.run_worker(self._examine(turn), group="examine", exclusive=True)

    async def _examine(self, turn: Turn) -> None:
        """Fill in the probabilities of the token that the cursor rests on."""
        await asyncio.sleep(_REST_SECONDS)
        try:
            found = await self.session.examine(turn, self._token_bar.index)
        except LocalspecError as error:
            self.hint(str(error))
            return
        if self._token_bar.turn is not turn:
            return  # left in the meantime
        if found is None:
            self._token_bar.unknown(status_text.why_not(self.session))
        else:
            self._token_bar.fill(found)
