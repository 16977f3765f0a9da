"""Colours, themes and contrast of the interface."""

import pytest
from fake_engine import LONG, FakeEngine, Script
from pictures import strips

from localspec.config import settings as config_settings
from localspec.core.errors import (
    UsageError,
)
from localspec.core.files import paths
from tui.render.text import SafeLines
from tui.screens.picking import ThemesScreen
from tui.terminal.theme import wanted
from tui.widgets.message import ReplyView


async def test_colours_and_back(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2)) as c:
        await c.ask("Hello")
        await c.sees("18 tokens")
        before = c.screen_text
        await c.pilot.press("ctrl+t")
        await c.sees("- a")
        await c.sees("right guess")
        await c.pilot.press("ctrl+t")
        await c.sees("• a")
        await c.until(lambda: c.screen_text == before)
        await c.ask_and_hold("and while it speaks")
        await c.pilot.press("ctrl+t")
        c.engine.go.set()
        await c.ready()
        await c.until(lambda: c.screen_text.count("- a") == 2)
        await c.pilot.press("ctrl+t")
        await c.until(lambda: c.screen_text.count("• a") == 2)


async def test_colours_can_be_told_apart_without_colour(chat):
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        await c.pilot.press("ctrl+t")
        await c.sees("- a")
        flow = c.app.screen.query_one(ReplyView).flow
        looks = {}
        for strip in flow.render_lines(flow.region.reset_offset):
            for segment in strip:
                style = segment.style
                looks[segment.text.strip()] = (style.bold, style.italic, style.underline)
        assert looks["four"][0]  # corrected is bold
        assert looks["five six"][2]  # accepted from n-gram is underlined
        assert looks["seven"][1]  # bonus is italic


async def test_long_coloured_text_keeps_every_line(chat):
    text = "".join(f"line {i}\n" + "\n" * (i % 3) for i in range(120)) + "end"
    async with chat(engine=FakeEngine([Script(text)], pace=0.002)) as c:
        await c.pilot.press("ctrl+t")
        await c.ask("Hello")
        flow = c.app.screen.query_one(ReplyView).flow
        assert flow.text == text
        await c.until(lambda: flow.size.height == text.count("\n") + 1)


@pytest.mark.parametrize("theme", ["localspec-light", "ansi-dark"])
async def test_any_theme_will_do(chat, theme):
    async with chat(Script(LONG)) as c:
        c.app.theme = theme
        await c.ask("Hello")
        await c.pilot.press("ctrl+t")
        await c.sees("corrected")


async def test_without_colour(chat, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        await c.pilot.press("ctrl+t")
        await c.sees("corrected")
        assert c.app.no_color
        assert isinstance(c.app._filters[-1], SafeLines)  # what is drawn passes it last of all


@pytest.mark.parametrize("theme", ["localspec-dark", "localspec-light"])
async def test_all_text_can_be_read(chat, theme):
    async with chat(Script(LONG), theme=theme, size=(100, 40)) as c:
        await c.pilot.press("f2")
        await c.ask("Hello")
        pairs = text_and_ground(c)
        await c.pilot.press("ctrl+t")
        await c.sees("corrected")
        pairs |= text_and_ground(c)
        assert len(pairs) > 8
        assert not {pair for pair in pairs if contrast(*pair) < 4.5}  # WCAG 2.2, 1.4.3, level AA


def text_and_ground(c):
    """Colours of letters and what is behind them, wherever there are some."""
    segments = [s for strip in strips(c.app) for s in strip if any(map(str.isalnum, s.text))]
    return {(s.style.color.triplet, s.style.bgcolor.triplet) for s in segments}


def contrast(*colours):
    """The ratio of WCAG 2.2 between two colours."""
    darker, lighter = sorted(
        sum(
            share * (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4)
            for share, v in zip((0.2126, 0.7152, 0.0722), colour.normalized, strict=True)
        )
        for colour in colours
    )
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["ansi-dark", "localspec-light"])
async def test_without_colour_text_is_never_as_dark_as_what_is_behind_it(chat, monkeypatch, theme):
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat(Script(LONG), theme="nord") as c:
        c.app.theme = theme
        await c.ask("Hello")
        styles = [
            segment.style
            for strip in strips(c.app)
            for segment in strip
            if segment.text.strip() and segment.style is not None
        ]
        assert styles
        for style in styles:
            assert style.color.is_default or style.color != style.bgcolor


async def test_a_theme_is_kept_for_the_next_time(chat):
    async with chat() as c:
        await c.type("/theme")
        await c.sees("localspec-light")
        await c.pilot.press(*"dracula")
        await c.until(lambda: "localspec-light" not in c.screen_text)
        await c.pilot.press("enter")
        await c.until(lambda: c.app.theme == "dracula")
        await c.type("/theme nord")
        await c.until((paths.config_dir() / "config.toml").is_file)
        assert c.app.theme == "nord"
    config_settings.settings.cache_clear()
    assert wanted(config_settings.settings()) == "nord"
    async with chat(theme=wanted(config_settings.settings())) as c:
        assert c.app.theme == "nord"
        await c.type("/theme nrd")
        await c.until(lambda: "did you mean nord?" in c.stats)
    with pytest.raises(UsageError, match="no theme 'norf'"):
        wanted({"theme": "norf"})
    with pytest.raises(UsageError, match="no theme False"):
        wanted({"theme": False})


async def test_the_theme_under_the_cursor_is_shown_and_escape_brings_the_one_before_back(chat):
    saved = paths.config_dir() / "config.toml"
    async with chat(Script("Fine.")) as c:
        await c.ask("Hello")
        before = c.app.theme
        await c.type("/theme")
        await c.until(lambda: isinstance(c.app.screen, ThemesScreen))
        await c.pilot.press(*"dracula")
        await c.until(lambda: c.app.theme == "dracula")
        await c.sees("Fine.")  # the chat is seen in it
        await c.pilot.press("escape")
        await c.until(lambda: c.app.theme == before)
        await c.idle()
        assert not saved.exists()
        c.app.action_change_theme()  # as the palette does
        await c.until(lambda: isinstance(c.app.screen, ThemesScreen))
        await c.pilot.press("down", "enter")
        await c.until(saved.is_file)
        assert c.app.theme != before


async def test_the_chat_below_a_screen_is_seen_before_textual_has_drawn_it_again(chat):
    async with chat(Script("Fine.")) as c:
        await c.ask("Hello")
        c.app.action_change_theme()
        await c.until(lambda: isinstance(c.app.screen, ThemesScreen) and c.app.screen.is_mounted)
        await c.pilot.pause()
        for _ in range(2):  # the first look may find what an earlier drawing has left
            c.app.screen.refresh()  # as the chat has it do where the chat itself was drawn
            assert "Fine." in c.screen_text


async def test_a_question_an_error_and_a_quotation_look_different(chat):
    async with chat(Script("> quoted")) as c:
        await c.ask("asked")
        await c.type("/export /dev/null/x.md")
        await c.sees("✗ ")
        rows = c.screen_text.splitlines()
        marks = {
            word: row.split()[0]
            for row in rows
            for word in ("asked", "quoted", "/dev")
            if row.split() and row.split()[0] in {"▌", "│", "✗"} and word in row
        }
        assert marks == {"asked": "▌", "quoted": "│", "/dev": "✗"}


async def test_the_light_terminal_theme_writes_black_on_white_on_a_dark_terminal_too(chat):
    async with chat(Script("Fine.")) as c:
        c.app.theme = "ansi-light"
        await c.ask("Hello")
        await c.sees("Fine.")
        style = next(
            part.style for strip in strips(c.app) for part in strip if "Fine." in part.text
        )
        assert (style.color.number, style.bgcolor.number) == (0, 15)
