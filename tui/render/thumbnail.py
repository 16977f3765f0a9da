"""Small pictures of half blocks: each cell shows two pixels, one above the other."""

from __future__ import annotations

from textual.content import Content, Span

from localspec.core.picture import Pixels
from tui.render.lines import Line

COLUMNS, ROWS = 36, 12
"""Largest size in cells."""
SIZE = (COLUMNS, 2 * ROWS)
"""The same in pixels."""


def thumbnail(pixels: Pixels) -> list[Line]:
    """Lines that show pixels of at most `SIZE`."""
    return [_line(pixels, y) for y in range(0, pixels.height, 2)]


def _line(pixels: Pixels, y: int) -> Line:
    spans: list[Span] = []
    for x in range(pixels.width):
        style = _colour(pixels, x, y)
        if y + 1 < pixels.height:
            style += f" on {_colour(pixels, x, y + 1)}"
        if spans and spans[-1].style == style:
            spans[-1] = Span(spans[-1].start, x + 1, style)
        else:
            spans.append(Span(x, x + 1, style))
    return Line(Content("▀" * pixels.width, spans))


def _colour(pixels: Pixels, x: int, y: int) -> str:
    at = 3 * (y * pixels.width + x)
    return f"#{pixels.rgb[at : at + 3].hex()}"
