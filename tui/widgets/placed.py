"""Widgets of the conversation, which are laid out once where Textual would do it twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:  # a widget here would keep the style sheet of the next base from being inherited
    _Base = object


class Placed(_Base):
    """Base of widgets whose size, once they are placed, asks for no other layout.

    A layout tells each widget its size, and Textual's widgets ask for another layout when that has
    changed. It finds the same sizes, since a widget of text computes its height before it is
    placed, and costs about 5 ms for each new or finished reply. Scroll bars that appear ask for a
    layout by themselves.
    """

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Take the size that a layout has found."""
        del layout
        return super()._size_updated(size, virtual_size, container_size, layout=False)
