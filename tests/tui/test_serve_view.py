"""The status view of the server, on a fake engine."""

import asyncio

from fake_serving import World
from narrow import go_through_narrow_sizes
from textual.widgets import Static

from localspec.core.events import Message
from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.body_budget import Caller
from tui.serve_view import ServeLog, ServeView


def shown(view, name):
    return str(view.query_one(f"#{name}", Static).content)


async def test_it_shows_the_address_running_requests_figures_and_the_log():
    world, log, stopped = World(), ServeLog(), []
    world.hold = asyncio.Event()
    await world.slots.load()
    view = ServeView(log, lambda: stopped.append(True))
    async with view.run_test(size=(80, 24)) as pilot:
        assert "loading" in shown(view, "head")
        log.ready(world.service, "http://127.0.0.1:8080")
        log.line("a line with \x1b[31mcolour")
        request = ReplyRequest(messages=(Message("user", "Hi"),))
        answering = await world.service.answer(Caller(label="key 1"), "/v1/x", None, [request])
        async with answering:
            world.hold.set()
            await answering.replies()
            view.look()
            assert "http://127.0.0.1:8080" in shown(view, "head")
            assert "key 1" in shown(view, "running")
            assert "6 tokens" in shown(view, "running")
            assert "accepted 50%" in shown(view, "figures")
            assert "colour" in shown(view, "log")
            assert "\x1b" not in shown(view, "log")
        view.look()
        assert shown(view, "running") == "no requests"
        assert "1 answered" in shown(view, "figures")
        await pilot.press("q")
        assert stopped


async def test_no_narrow_terminal_ends_the_view():
    world, log = World(), ServeLog()
    await world.slots.load()
    view = ServeView(log, lambda: None)
    async with view.run_test(size=(80, 24)) as pilot:
        log.ready(world.service, "http://127.0.0.1:8080")
        log.line("a line of several words")
        await go_through_narrow_sizes(pilot)
        view.look()
        assert "http://127.0.0.1:8080" in shown(view, "head")
