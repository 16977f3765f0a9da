"""A growing reply is drawn as a layout would draw it."""

import pytest
from fake_engine import FakeEngine, Script

from tui.screens.chat import ChatScreen
from tui.widgets.growth_painter import GrowthPainter
from tui.widgets.message import ReplyView

CODE = "```python\ntotal = 1\nfor n in range(9):\n    total += n  # wide: 漢字\n```\n\n"
PARAGRAPHS = [f"Paragraph {n} has *several* words, `code` and more words.\n\n" for n in range(12)]
LONG = "".join((*PARAGRAPHS[:5], CODE, "- one\n- two\n\n", *PARAGRAPHS[5:]))


@pytest.fixture
def drawn(monkeypatch):
    """The rows that are drawn without a layout, as they come."""
    found = []

    def display(app, screen, update):
        if hasattr(update, "_rows"):
            found.append((update._x, update._rows))

    monkeypatch.setattr("tui.app.ChatApp._display", display)
    return found


def picture(screen):
    """What Textual draws: text and styles, row by row."""
    return [cells(strip) for strip in screen._compositor.render_strips()]


def cells(strip):
    return [(char, str(part.style)) for part in strip for char in part.text]


def apply(before, updates):
    rows = [list(row) for row in before]
    for x, update in updates:
        for y, strip in update:
            new = cells(strip)
            rows[y][x : x + len(new)] = new
    return rows


def text(rows):
    return ["".join(char for char, _ in row) for row in rows]


@pytest.mark.parametrize("size", [(60, 20), (100, 30)])
@pytest.mark.parametrize("colours", [False, True])
async def test_rows_drawn_without_a_layout_are_those_of_a_layout(
    chat, drawn, monkeypatch, size, colours
):
    """Drawn without a layout again and again, the picture is Textual's own at every point."""
    found = []
    paint = GrowthPainter.paint

    def compared(painter, view):
        paint(painter, view)
        if painter.ahead and painter._layout is not None:
            before = [cells(strip) for strip in painter._layout.first]
            found.append((painter._layout.window, before, list(painter._layout.drawn)))
            updates = list(drawn)
            drawn.clear()
            window, _, rows = found[-1]
            assert all(x == window.x for x, _ in updates)
            shown = [cells(strip) for strip in rows]
            painter._screen.catch_up()
            own = [row[window.x : window.right] for row in picture(painter._screen)]
            assert text(shown) == text(own[window.y : window.bottom])
            assert [s for s in map(cells, rows)] == own[window.y : window.bottom]

    monkeypatch.setattr(GrowthPainter, "paint", compared)
    engine = FakeEngine([Script("An earlier reply.\n\n- with\n- a list\n"), Script(LONG)], pace=0.02)
    async with chat(engine=engine, size=size) as c:
        if colours:
            await c.pilot.press("ctrl+t")
        await c.ask("First")
        await c.ask("Then")
        assert len(found) > 5
