"""What has left the screen is freed, whether or not the user ever pauses."""

from __future__ import annotations

import weakref

import pytest
from fake_engine import Script

from tui.screens import chat as chat_screen
from tui.terminal import resources
from tui.widgets import chat_log
from tui.widgets.message import ReplyView


@pytest.fixture
def collections(monkeypatch):
    """The collections of everything so far, which are not made."""
    found = []
    monkeypatch.setattr(resources, "collect_garbage", lambda: found.append("all"))
    return found


async def test_messages_that_have_left_the_screen_are_freed_without_any_pause_and_so_are_their_rows(
    chat, monkeypatch, collections
):
    monkeypatch.setattr(chat_screen, "_REPLIES", 2)
    for name in ("KEEP", "SLACK"):
        monkeypatch.setattr(chat_log, name, 2)
    count = 9
    async with chat(*(Script(f"Reply {n}.") for n in range(count))) as c:
        drawn = []
        for n in range(count):
            await c.ask(f"question {n}")
            view = c.app.screen.query(ReplyView).last()
            rows = weakref.WeakSet(part._styles_cache for part in view.walk_children())
            drawn.append((weakref.ref(view), rows))
            del view
        freed = [rows for view, rows in drawn if view() is None]
        assert len([None for view, _ in drawn if view() and not view().is_attached]) <= 2
        assert freed
        assert not any(freed)
        assert not collections


async def test_what_waited_for_a_pause_behind_another_screen_is_collected_after_it(
    chat, monkeypatch, collections
):
    monkeypatch.setattr(chat_screen, "_IDLE_SECONDS", 0.2)
    async with chat(Script("One.")) as c:
        await c.ask("Hello")
        await c.until(lambda: collections)
        await c.pilot.press("ctrl+l")
        await c.until(lambda: c.app.screen is not c.app.screen_stack[0])
        c.app.screen_stack[0]._wake()
        timer = c.app.screen_stack[0]._idle_timer._active
        await c.until(timer.is_set)
        collections.clear()
        await c.until(lambda: not timer.is_set())  # and nothing was collected
        assert not collections
        await c.leave()
        await c.until(lambda: collections)
