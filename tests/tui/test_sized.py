"""Sizes of the terminal, and how often the screen is drawn."""

import os

import pytest
from fake_engine import FakeEngine, Script
from textual import events
from textual.screen import Screen

from localspec.core.events import ModelInfo, Speculation
from tui.render import code_colours
from tui.render.code_colours import has_new_language
from tui.render.markdown import typeset
from tui.screens.settings import SettingsScreen
from tui.terminal.resources import RefreshRate


def model(**changed):
    values = {
        "target": "t.gguf",
        "draft": None,
        "backend": "cpu",
        "context": 8192,
        "name": "t",
        "target_bytes": 1,
        "draft_bytes": 0,
        "threads": 1,
        "speculation": Speculation("on"),
    }
    return ModelInfo(**{**values, **changed})


async def test_a_new_size_of_the_terminal_is_laid_out_once(chat, monkeypatch):
    async with chat() as c:
        laid_out = []
        original = Screen._screen_resized
        monkeypatch.setattr(
            Screen,
            "_screen_resized",
            lambda screen, size: (laid_out.append(tuple(size)), original(screen, size)),
        )
        await c.pilot.resize_terminal(130, 40)
        await c.pilot.pause()
        await c.pilot.resize_terminal(70, 15)
        await c.pilot.pause()
        assert laid_out == [(130, 40), (70, 15)]


async def test_after_the_shell_had_the_terminal_all_is_drawn_again(chat, monkeypatch):
    async with chat() as c:
        await c.idle()
        drawn = []
        monkeypatch.setattr(c.app, "_display", lambda screen, update: drawn.append(update))
        c.app.app_resume_signal.publish(c.app)
        c.app.post_message(events.Resize(c.app.size, c.app.size))  # as Textual's driver does
        await c.until(lambda: any(type(one).__name__ == "LayoutUpdate" for one in drawn))


@pytest.mark.parametrize(
    ("size", "classes"),
    [((70, 15), {"-narrow", "-low"}), ((130, 25), {"-wide", "-high"}), ((119, 40), {"-tall"})],
)
async def test_a_screen_has_the_classes_of_its_size_from_the_start_and_later(chat, size, classes):
    async with chat(size=size) as c:
        assert classes <= c.app.screen.classes
    async with chat(size=(100, 30)) as c:
        await c.pilot.resize_terminal(*size)
        await c.pilot.pause()
        assert classes <= c.app.screen.classes


async def test_the_settings_keep_their_title_on_a_low_screen_though_the_picker_hides_its_own(chat):
    async with chat(size=(80, 16)) as c:
        await c.pilot.press("ctrl+s")
        await c.until(lambda: isinstance(c.app.screen, SettingsScreen))
        assert c.app.screen.query_one("#title").display


class Clock:
    """Time and CPU time that only tests move."""

    def __init__(self):
        self.now = self.used = 100.0

    def rate(self, monkeypatch, info):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
        rate = RefreshRate(lambda: self.now, lambda: self.used)
        rate.model_opened(info)
        return rate

    def refreshes(self, rate, cost):
        """Refreshes in ten seconds, where each costs so many seconds of CPU."""
        done = 0
        for _ in range(1000):
            self.now += 0.01
            if rate.due():
                done += 1
                self.used += cost
        return done


def test_cheap_refreshes_come_steadily(monkeypatch):
    clock = Clock()
    assert clock.refreshes(clock.rate(monkeypatch, model(threads=1)), 0.001) in range(140, 180)
    assert clock.refreshes(clock.rate(monkeypatch, model(threads=4)), 0.001) in range(95, 112)


def test_beside_a_model_that_takes_every_processor_refreshes_keep_to_their_share(monkeypatch):
    clock = Clock()
    before = clock.used
    done = clock.refreshes(clock.rate(monkeypatch, model(threads=4)), 0.005)
    assert clock.used - before <= 0.2  # of ten seconds
    assert done >= 20


def test_refreshes_that_cost_too_much_still_come_twice_a_second(monkeypatch):
    clock = Clock()
    assert clock.refreshes(clock.rate(monkeypatch, model(threads=4)), 0.4) in range(19, 22)


def test_a_gpu_or_a_free_processor_leaves_the_interface_its_rate(monkeypatch):
    clock = Clock()
    for info in (model(threads=4, backend="cuda"), model(threads=2)):
        assert clock.refreshes(clock.rate(monkeypatch, info), 0.01) > 140


def test_a_language_is_new_until_code_in_it_was_set(monkeypatch):
    monkeypatch.setattr(code_colours, "_known", set())
    text = "Look:\n\n- a list\n\n  ```fortran\n  end\n  ```\n"
    assert has_new_language(text)
    typeset(text)
    assert not has_new_language(text)
    assert not has_new_language("```\nno language\n```\n```brainfuck\n++\n```\n")


async def test_code_in_a_new_language_is_set_all_the_same(chat, monkeypatch):
    monkeypatch.setattr(code_colours, "_known", set())
    async with chat(engine=FakeEngine([Script("```erlang\n>v\n```\n\nDone.")])) as c:
        await c.ask("Show code")
        await c.sees("Done.")
        assert ">v" in c.screen_text
