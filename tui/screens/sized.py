"""Screens that are laid out once for each terminal size, and closed once."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.await_complete import AwaitComplete
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType


class SizedScreen(Screen[ScreenResultType]):
    """A screen that sets the classes of its size before the layout, and handles each size once.

    Textual sets them after the layout, computes every style again and repeats the layout; and a
    screen receives a resize event for a size that it has just been laid out for. Three layouts were
    a visible stutter.
    """

    _taken: Size | None = None

    def on_resize(self, event: events.Resize) -> None:
        """Prepare for a new size; Textual's layout follows."""
        if event.size == self._taken:
            event.prevent_default()
            return
        self._taken = event.size
        self.fit(event.size)

    def fit(self, size: Size) -> None:
        """Change what depends on the size, before the layout."""
        if self.take_size(size):
            self.update_node_styles(animate=False)

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the screen and report the result. Keys typed before it was gone may still come in
        afterwards; they do not close the screen below it, nor report a second time.
        """
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def take_size(self, size: Size) -> bool:
        """Set the classes of a size without computing styles; whether they changed."""
        before = frozenset(self.classes)
        for points, length in (
            (self.HORIZONTAL_BREAKPOINTS, size.width),
            (self.VERTICAL_BREAKPOINTS, size.height),
        ):
            self._take(points or (), length)
        return frozenset(self.classes) != before

    def _take(self, points: Sequence[tuple[int, str]], length: int) -> None:
        named = max((point for point in points if length >= point[0]), default=(0, ""))[1]
        for _, name in points:
            self.set_class(name == named, name, update=False)
