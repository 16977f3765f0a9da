"""Text of models and users, made safe to show."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localspec.core.safe_text import is_safe, safe_text, without_harmful


def plain(text: str) -> str:
    """``text`` with control characters and odd line separators made harmless.

    A model may emit anything; escape sequences must not reach the terminal, and what counts as a
    line must be the same for everyone.
    """
    return safe_text(text).replace("\t", "    ")


class SafeLines(LineFilter):
    """Removes control characters.

    Widgets replace such characters (`tui.render.text.plain`); here they are removed where a widget
    does not: they have no width, so the line keeps its length.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without harmful characters; Textual's own control segments stay."""
        del background
        if all(segment.control or is_safe(segment.text) for segment in segments):
            return segments
        return [
            segment
            if segment.control
            else Segment(without_harmful(segment.text), segment.style, segment.control)
            for segment in segments
        ]
