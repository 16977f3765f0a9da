"""A growing reply is drawn as a layout would draw it."""

import itertools

import pytest
from fake_engine import FakeEngine, Script
from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from tui.terminal.resources import RefreshRate
from tui.terminal.textual_private import RowsUpdate
from tui.widgets.growth_painter import GrowthPainter

CODE = "```python\ntotal = 1\nfor n in range(9):\n    total += n  # wide: 漢字\n```\n\n"
PARAGRAPHS = [f"Paragraph {n} has *several* words, `code` and more words.\n\n" for n in range(9)]
LONG = "".join((*PARAGRAPHS[:4], CODE, "- one\n- two\n\n", *PARAGRAPHS[4:]))


def cells(strip):
    """Characters with their styles; of a blank only the background can be seen."""
    return [
        (char, str(part.style.background_style if char == " " else part.style))
        for part in strip
        for char in part.text
    ]


@pytest.mark.parametrize(("size", "key"), [((60, 20), "f10"), ((100, 30), "ctrl+t")])
async def test_rows_drawn_without_a_layout_are_those_of_a_layout(chat, monkeypatch, size, key):
    compared, painted_times = [], itertools.count(1)
    paint = GrowthPainter.paint

    def painted(painter, view):
        paint(painter, view)
        if painter.ahead and next(painted_times) % 3 == 0:  # in between it builds on its own rows
            layout, screen = painter._layout, painter._screen
            screen.catch_up()
            strips = screen._compositor.render_strips()[layout.window.y : layout.window.bottom]
            own = [strip.crop(layout.window.x, layout.window.right) for strip in strips]
            compared.append(([cells(row) for row in layout.drawn], [cells(row) for row in own]))

    monkeypatch.setattr(GrowthPainter, "paint", painted)
    monkeypatch.setattr(RefreshRate, "due", lambda rate: True)
    scripts = [Script("An earlier reply.\n\n- with\n- a list\n"), Script(LONG)]
    async with chat(engine=FakeEngine(scripts, pace=0.03), size=size) as c:
        await c.pilot.press(key)
        await c.ask("First")
        await c.ask("Then")
    assert compared
    for drawn, own in compared:
        assert drawn == own


def test_rows_are_written_at_their_places():
    update = RowsUpdate(2, [(3, Strip([Segment("one")])), (5, Strip([Segment("two")]))])
    assert update.render_segments(Console(color_system=None)) == "\x1b[4;3Hone\x1b[6;3Htwo"
