"""Classes that go by the size of the terminal, known before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size
from textual.screen import Screen, ScreenResultType


class SizedScreen(Screen[ScreenResultType]):
    """A screen whose breakpoints are taken before its layout.

    Textual takes them after it, works out every style once more and lays everything out again;
    with both at once a resize was felt.
    """

    def take_size(self, size: Size) -> bool:
        """Set the classes of a size without working out styles; whether they are others."""
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
