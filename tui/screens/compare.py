"""Drafting against plain decoding, side by side where there is room."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer

from tui.input import keymap
from tui.render.block_splitter import plain
from tui.screens.sized import SizedScreen
from tui.session.comparison import Comparison
from tui.session.token_runs import styled
from tui.widgets.bars import Bar
from tui.widgets.flow import TextFlow

_LOOKS_PER_SECOND = 16


class Verdict(Bar):
    """As high as what is said."""

    def show(self, text: Content) -> None:
        """Show what came of it."""
        if not text.is_same(self._shown):
            self._shown = text
            self.update(text)


class CompareScreen(SizedScreen[None], ModalScreen[None]):
    """Shows a comparison while it is made."""

    BINDINGS = keymap.COMPARE
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (100, "-beside")]  # noqa: RUF012 - Textual's type

    def __init__(self, comparison: Comparison, verifier: str) -> None:
        super().__init__()
        self._comparison = comparison
        self._verifier = verifier
        self._shown = 0
        self._following = False

    def compose(self) -> ComposeResult:
        """The verdict above the two replies."""
        self.take_size(self.app.size)
        yield Verdict(markup=False, id="verdict")
        with Container(id="sides"):
            with Vertical():
                yield Bar(markup=False, classes="side")
                with VerticalScroll() as self._drafted_scroll:
                    yield TextFlow("drafted")
            with Vertical():
                yield Bar(markup=False, classes="side")
                with VerticalScroll() as self._plain_scroll:
                    yield TextFlow("plain")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the reply that is there and wait for the other."""
        self._left, self._right = self.query(".side").results(Bar)
        self._plain = self.query_one("TextFlow.plain", TextFlow)
        turn, made = self._comparison.turn, self._comparison.made
        self.query_one("TextFlow.drafted", TextFlow).add(
            styled(turn.runs.since(len(plain(turn.text[: made.said]))))
        )
        sides = (self._drafted_scroll, self._plain_scroll)
        for one, other in (sides, sides[::-1]):
            self.watch(one, "scroll_y", partial(self._follow, other), init=False)
        self._timer = self.set_interval(1 / _LOOKS_PER_SECOND, self._look)
        self._look()

    def _follow(self, other: VerticalScroll, y: float) -> None:
        """Both replies are looked at in the same place."""
        if not self._following:
            self._following = True
            other.scroll_to(y=y, animate=False, immediate=True)
            self._following = False

    def _look(self) -> None:
        comparison = self._comparison
        over = comparison.over  # before the rest is looked at, or the last news would be missed
        new = comparison.tokens[self._shown :]
        if new:
            self._plain.add(Content.assemble(*(self._part(i) for i in range(len(new)))))
            self._shown += len(new)
            self._plain_scroll.scroll_end(animate=False)
        self.query_one(Verdict).show(Content(comparison.verdict(self._verifier)))
        self._left.show(self._title("with drafting", comparison.speeds.of(draft=True)))
        self._right.show(self._title("plain decoding", comparison.speeds.of(draft=False)))
        if over:
            self._timer.pause()

    def _part(self, index: int) -> tuple[str, str]:
        at = self._shown + index
        parted = self._comparison.parted
        style = ""
        if parted is not None and at >= parted:
            style = "reverse" if at == parted else "underline"
        return plain(self._comparison.tokens[at].text), style

    def action_leave(self) -> None:
        """Back to the chat; what still runs is stopped."""
        self.dismiss(None)

    @staticmethod
    def _title(name: str, speed: float) -> Content:
        now = f"  {speed:.1f} tok/s now" if speed else ""
        return Content.assemble((name, "bold $primary"), (now, "$quiet"))
