"""A screen in which a growing reply is drawn without layouts."""

from __future__ import annotations

from collections.abc import Collection

from textual.widget import Widget

from tui.screens.sized import SizedScreen
from tui.terminal.textual_private import Foreseen
from tui.widgets.chat_log import ChatLog
from tui.widgets.growth_painter import GrowthPainter


class DrawnAheadScreen(Foreseen, SizedScreen[None]):
    """Has a layout come before whatever else happens where a reply was drawn without one."""

    def paint_growth_of(self, log: ChatLog) -> None:
        """Draw the replies of a conversation; to be called before the screen is mounted."""
        self._conversation = log
        self.painter = GrowthPainter(self, log)

    def catch_up(self) -> None:
        """Lay out what was drawn without a layout: places on the screen are about to be used."""
        if self.painter.ahead:
            self.lay_out()

    def prepare_layout(self) -> bool:
        """Have the layout place all rows; where it has to, it does not scroll."""
        return self.painter.prepare_layout()

    def wants_layout(self, changed: Collection[Widget]) -> bool:
        """Whether something in the conversation is drawn while the terminal is ahead."""
        lines = (widget.ancestors_with_self for widget in changed)
        return self.painter.ahead and (
            not changed or any(self._conversation in line for line in lines)
        )
