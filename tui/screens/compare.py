"""The comparison of a drafted reply with plain decoding, side by side where there is room.

Both are shown as the model wrote them, token by token and with the marks of their Markdown: these
are tokens too, and may differ.
"""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import SizedScreen
from tui.session.comparison import ReplyComparison
from tui.session.token_runs import styled
from tui.widgets.bars import Bar
from tui.widgets.document import TextFlow
from tui.widgets.key_bar import KeyBar

_REFRESHES_PER_SECOND = 16


class VerdictBar(Bar):
    """The result so far, on as many lines as it takes."""

    GROWS = True


class CompareScreen(SizedScreen[None], ModalScreen[None]):
    """Shows a comparison while it is made."""

    BINDINGS = keymap.of_screen("compare")
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (100, "-beside")]  # noqa: RUF012 - Textual's type

    def __init__(self, comparison: ReplyComparison, verifier: str) -> None:
        super().__init__()
        self._comparison = comparison
        self._verifier = verifier
        self._shown = 0
        self._following = False

    def compose(self) -> ComposeResult:
        """The result above the two replies."""
        self.take_size(self.app.size)
        yield VerdictBar(id="verdict")
        with Container(id="sides"):
            with Vertical():
                yield Bar(classes="side")
                with VerticalScroll() as self._drafted_scroll:
                    yield TextFlow("drafted")
            with Vertical(classes="right"):
                yield Bar(classes="side")
                with VerticalScroll() as self._plain_scroll:
                    yield TextFlow("plain")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the drafted reply and wait for the plain one."""
        self._left, self._right = self.query(".side").results(Bar)
        self._plain = self.query_one("TextFlow.plain", TextFlow)
        turn, recipe = self._comparison.turn, self._comparison.recipe
        self.query_one("TextFlow.drafted", TextFlow).add(
            styled(turn.runs.since(len(plain(turn.text[: recipe.how.said]))))
        )
        sides = (self._drafted_scroll, self._plain_scroll)
        for one, other in (sides, sides[::-1]):
            self.watch(one, "scroll_y", partial(self._follow, other), init=False)
        self._timer = self.set_interval(1 / _REFRESHES_PER_SECOND, self._refresh)
        self._refresh()

    def _follow(self, other: VerticalScroll, y: float) -> None:
        """Scroll both replies together."""
        if not self._following:
            self._following = True
            other.scroll_to(y=y, animate=False, immediate=True)
            self._following = False

    def _refresh(self) -> None:
        comparison = self._comparison
        over = comparison.over  # read first, or the last tokens could be missed
        new = comparison.tokens[self._shown :]
        if new:
            self._plain.add(Content.assemble(*(self._part(i) for i in range(len(new)))))
            self._shown += len(new)
            self._plain_scroll.scroll_end(animate=False)
        self.query_one(VerdictBar).show(Content(comparison.verdict(self._verifier)))
        speeds = comparison.speeds
        known = not (speeds.complete and speeds.not_comparable)
        drafted = self._comparison.recipe.reply.stats.drafted
        name = "with drafting" if drafted or not over else "the reply; nothing was drafted"
        self._left.show(self._title(name, speeds.of(draft=True) if known else 0))
        self._right.show(self._title("plain decoding", speeds.of(draft=False) if known else 0))
        if over:
            self._timer.pause()

    def _part(self, index: int) -> tuple[str, str]:
        at = self._shown + index
        divergence = self._comparison.divergence
        style = ""
        if divergence is not None and at >= divergence:
            style = "reverse" if at == divergence else "underline"
        return plain(self._comparison.tokens[at].text), style

    def action_leave(self) -> None:
        """Back to the chat; a running comparison is stopped."""
        self.dismiss(None)

    @staticmethod
    def _title(name: str, speed: float) -> Content:
        now = f"  {speed:.1f} tok/s now" if speed else ""
        return Content.assemble((name, "bold $primary"), (now, "$quiet"))
