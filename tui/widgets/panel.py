"""The strip of the last rounds and the panel of details."""

from __future__ import annotations

import textwrap

from textual.content import Content
from textual.widgets import Static

from tui.render.stats_panel import details, strip
from tui.render.text import plain
from tui.session.meter import Meter
from tui.widgets.bars import Bar

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
