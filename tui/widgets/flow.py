"""Growing text that is cheap to grow: only its last chunk is laid out again."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

_CHUNK = 400
"""Characters after which a chunk is sealed at its last line end."""


class TextFlow(Vertical):
    """Text in one or more Statics, each a run of whole lines; never parsed as markup."""

    def __init__(self, classes: str) -> None:
        super().__init__(classes=classes)
        self._open = Content("")
        self._last: Static | None = None

    def add(self, text: Content) -> None:
        """Append text."""
        self._open += text
        if len(self._open) > _CHUNK:
            cut = self._open.plain.rfind("\n")
            if cut > 0:
                self._show(self._open[:cut])
                self._open = self._open[cut + 1 :]
                self._last = None
        if self._open:
            # A line end with nothing after it is no line yet.
            ended = self._open.plain.endswith("\n")
            self._show(self._open[: len(self._open) - 1] if ended else self._open)

    def reset(self, text: Content) -> None:
        """Show other text instead."""
        for static in list(self.query_children(Static))[1:]:
            static.remove()
        self._last = self.query_children(Static).first(Static) if self.children else None
        self._open = Content("")
        if self._last is not None:
            self._last.update(self._open)
        self.add(text)

    def _show(self, text: Content) -> None:
        if self._last is None:
            self._last = Static(text, markup=False)
            self.mount(self._last)
        else:
            self._last.update(text, layout=self._grows(self._last, text))

    @staticmethod
    def _grows(static: Static, text: Content) -> bool:
        """Whether the text takes other lines than the widget has; else a layout can be saved."""
        width, height = static.content_size
        return width == 0 or text.get_height({}, width) != height
