"""What a size of the terminal changes, and how often the screen is drawn."""

import os

import pytest
from fake_engine import FakeEngine, Script
from textual.screen import Screen

from localspec.core.events import ModelInfo, Speculation
from tui.render.markdown import has_new_language, typeset
from tui.screens.settings import SettingsScreen
from tui.terminal import refresh_rate


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


def test_the_screen_looks_less_often_where_the_model_takes_every_processor(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert refresh_rate.refreshes_per_second(None) == 16
    assert refresh_rate.refreshes_per_second(model(threads=1)) == 16
    assert refresh_rate.refreshes_per_second(model(threads=2)) == 10
    assert refresh_rate.refreshes_per_second(model(threads=2, backend="cuda")) == 16


def test_a_language_is_new_until_code_in_it_was_set():
    text = "Look:\n\n- a list\n\n  ```brainfuck\n  ++\n  ```\n"
    assert has_new_language(text)
    typeset(text)
    assert not has_new_language(text)
    assert not has_new_language("```\nno language\n```\n")


async def test_code_in_a_new_language_is_set_all_the_same(chat):
    async with chat(engine=FakeEngine([Script("```befunge\n>v\n```\n\nDone.")])) as c:
        await c.ask("Show code")
        await c.sees("Done.")
        assert ">v" in c.screen_text
