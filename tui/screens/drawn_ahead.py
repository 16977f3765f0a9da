"""A screen in which a growing reply is drawn without layouts."""

from __future__ import annotations

from textual.geometry import Size

from tui.screens.sized import SizedScreen
from tui.widgets.chat_log import ChatLog
from tui.widgets.growth_painter import GrowthPainter


class DrawnAheadScreen(SizedScreen[None]):
    """Has a layout come before whatever else happens where a reply was drawn without one."""

    def paint_growth_of(self, log: ChatLog) -> None:
        """Draw the replies of a conversation; to be called before the screen is mounted."""
        self._conversation = log
        self.painter = GrowthPainter(self, log)

    def catch_up(self) -> None:
        """Lay out what was drawn without a layout: places on the screen are about to be used."""
        if self.painter.ahead:
            self._refresh_layout()

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        behind = self.painter.prepare_layout()
        super()._refresh_layout(size, scroll and not behind)

    def _on_timer_update(self) -> None:
        dirty = (widget.ancestors_with_self for widget in self._dirty_widgets)
        inside = self._repaint_required or any(self._conversation in line for line in dirty)
        if inside and self.painter.ahead:
            self._layout_required = True
        super()._on_timer_update()
