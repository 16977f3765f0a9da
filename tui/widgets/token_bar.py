"""Figures of a reply: the token under the cursor, the rounds, the panel of details."""

from __future__ import annotations

import textwrap

from textual.content import Content
from textual.widgets import Static

from localspec.core.emitted import Origin
from localspec.core.events import Candidate, Examination
from tui.render.stats_panel import details, strip
from tui.render.text import plain
from tui.session.conversation import ChatTurn
from tui.session.meter import Meter
from tui.session.token_runs import is_looked_up, kind_of
from tui.widgets.bars import Bar

_LEAST = 0.0005
"""Least probability of an alternative that is shown; others would be shown as 0.0%."""


class TokenBar(Bar):
    """A cursor over the tokens of one reply, and two lines about the token under it."""

    def on_mount(self) -> None:
        """Start without a reply."""
        self.turn: ChatTurn | None = None
        """The reply that the cursor is in."""
        self.index = 0
        self.display = False

    def go(self, turn: ChatTurn, index: int) -> None:
        """Move the cursor to one token of a reply."""
        self.turn, self.index = turn, index
        self.move(turn, 0)

    def move(self, turn: ChatTurn, step: int) -> None:
        """Move the cursor by ``step``; in another reply, to its last token."""
        if turn is not self.turn:
            self.turn, self.index = turn, len(turn.tokens) - 1
        else:
            self.index = max(0, min(len(turn.tokens) - 1, self.index + step))
        self.display = True
        self.show(self._line("asking the models …"))

    def leave(self) -> None:
        """Hide the cursor."""
        self.turn = None
        self.display = False

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of the token in the shown text."""
        assert self.turn is not None
        start = sum(len(plain(token.text)) for token in self.turn.tokens[: self.index])
        return start, start + len(plain(self.turn.tokens[self.index].text))

    def fill(self, found: Examination) -> None:
        """Show the candidates of the token."""
        others = [c for c in found.candidates if c.token != found.chosen.token]
        likely = [c for c in others if c.model >= _LEAST] or others[:1]
        line = "else  " + "  ".join(f"{_quoted(c.text)} {_share(c.model)}" for c in likely)
        self.show(
            self._line(self._probabilities(found.chosen)) + Content.assemble("\n", (line, "$quiet"))
        )

    def unknown(self, why: str | None = None) -> None:
        """Show why the models cannot be asked about the token."""
        self.show(self._line(why or "p and q are no longer available"))

    def _line(self, rest: str) -> Content:
        assert self.turn is not None
        token = self.turn.tokens[self.index]
        kind = kind_of(token)
        place = f"token {self.index + 1}/{len(self.turn.tokens)}  "
        return Content.assemble(
            (place, "$quiet"),
            (_quoted(token.text), "bold"),
            "  ",
            (kind.labels[0], kind.style),
            (f"  {rest}", "$quiet"),
        )

    def _probabilities(self, chosen: Candidate) -> str:
        assert self.turn is not None
        token = self.turn.tokens[self.index]
        if is_looked_up(token):
            q = "1, looked up"
        else:
            unknown = "not known" if token.origin is Origin.ACCEPTED else "none"
            q = unknown if chosen.q is None else f"{chosen.q:.3f}"
        return f"p {chosen.p:.3f}  q {q}  raw {_share(chosen.model)}"


def _quoted(text: str) -> str:
    """A token's text with visible spaces; parts of characters have no text."""
    return repr(plain(text)) if text else "(no text)"


def _share(value: float) -> str:
    return f"{100 * value:.1f}%"


_LABEL = 12


class RoundStrip(Bar):
    """Drafted above accepted tokens, one column a round."""

    def show_rounds(self, meter: Meter) -> None:
        """Show the newest rounds that fit."""
        if not self.display:
            return
        width = (self.content_size.width or self.app.size.width - 4) - _LABEL
        drafted, accepted = strip(list(meter.last_rounds)[-max(1, width) :], width)
        self.show(
            Content.assemble(
                ("drafted".ljust(_LABEL), "$quiet"),
                (drafted, "$quiet"),
                "\n",
                ("accepted".ljust(_LABEL), "$quiet"),
                (accepted, "$origin-model"),
            )
        )


class Details(Static):
    """Times, drafters and acceptance of the running or last reply."""

    _shown: list[tuple[str, str]] = []  # noqa: RUF012 - replaced, never changed

    def show_details(self, meter: Meter, setting: str) -> None:
        """Show the figures of the running or last reply; see `details`."""
        lines = details(meter, setting)
        if self.display and lines != self._shown:
            self._shown = lines
            self._set()

    def on_resize(self) -> None:
        """Wrap long lines in their column."""
        self._set()

    def _set(self) -> None:
        room = max(_LABEL, (self.content_size.width or self.app.size.width) - _LABEL)
        between = "\n" + " " * _LABEL
        parts = [
            Content.assemble(
                (plain(label).ljust(_LABEL), "$primary"),
                (between.join(textwrap.wrap(plain(text), room)), "$quiet"),
            )
            for label, text in self._shown
        ]
        self.update(Content("\n").join(parts))
