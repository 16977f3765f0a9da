"""The keys of a screen, in its last row.

Textual's own footer has a widget for each key and makes all of them anew whenever a key comes or
goes, at the beginning and the end of every reply.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Protocol, runtime_checkable

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen

from tui.render.text import plain
from tui.widgets.bars import Bar

_COMPACT = 90
"""Columns of the terminal below which there is less space between keys."""


@runtime_checkable
class Says(Protocol):
    """A screen on which a key does now this, now that."""

    def does(self, binding: Binding) -> str:
        """What a key does now, in a word."""
        ...


class KeyBar(Bar):
    """Keys that do something now, with what they do; a click has the effect of the key."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        height: 1;
        padding: 0 1;
        color: $footer-foreground;
        background: $footer-background;
        text-wrap: nowrap;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []
        self._starts: list[int] = []
        """Cells before each key."""

    def on_mount(self) -> None:
        """Follow the keys of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_resize(self) -> None:
        """Show the keys in another width."""
        self._changed(self.screen)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Do what the key under the mouse does."""
        at = bisect_right(self._starts, event.x - self.gutter.left) - 1
        if 0 <= at < len(self._keys):
            self.app.simulate_key(self._keys[at])

    def _changed(self, screen: Screen[object]) -> None:
        if screen is not self.screen or not self.is_attached:
            return
        compact = self.app.size.width < _COMPACT
        shown = {}
        for _, binding, enabled, _ in screen.active_bindings.values():
            if binding.show and enabled and binding.action not in shown:
                shown[binding.action] = binding
        parts = {}
        for binding in shown.values():
            key = plain(self.app.get_key_display(binding))
            does = plain(screen.does(binding) if isinstance(screen, Says) else binding.description)
            label, gap = (f" {does}", " ") if compact else (f"{does} ", "")
            key = key if compact else f" {key} "
            styled = (key, "bold $footer-key-foreground"), (label, "$footer-description-foreground")
            parts[binding.key] = Content.assemble(*styled, gap)
        self._fit(parts)
        self._keys = list(parts)
        self._starts = [0, *accumulate(part.cell_length for part in parts.values())]
        self.show(Content("").join(parts.values()))

    def _fit(self, parts: dict[str, Content]) -> None:
        """Leave out the longest descriptions where not all have room."""
        room = self.app.size.width - self.gutter.width
        while len(parts) > 1 and sum(part.cell_length for part in parts.values()) - 1 > room:
            del parts[max(parts, key=lambda key: parts[key].cell_length)]
