"""The field for messages: keys, completion, files, the editor, what waits in line."""

import contextlib
import sys

import pytest
from fake_engine import LONG, Script
from pictures import strips
from textual import events
from textual._xterm_parser import XTermParser

from localspec.core.events import Message
from tui.input.long_text import Pastes


async def test_sending_while_the_model_speaks_waits_in_line(chat):
    async with chat(Script(LONG, hold_at=2), Script("Second."), Script("Third.")) as c:
        await c.ask_and_hold("one")
        await c.type("two")
        await c.type("three")
        await c.sees("↳ three")
        await c.sees("↳ (↑ takes the last back; sent next)  two")
        assert len(c.engine.asked) == 1
        c.engine.go.set()
        await c.until(lambda: len(c.replies) == 3 and c.replies[-1].end)
        await c.ready()
        assert [reply.text for reply in c.replies] == [LONG, "Second.", "Third."]
        await c.until(lambda: "↳" not in c.screen_text)


async def test_the_composer_grows_and_enter_sends_it_all(chat):
    async with chat(Script("Yes.")) as c:
        assert c.composer.region.height == 3
        await c.pilot.press("a", "ctrl+j", "b", "ctrl+j", "c")
        await c.pilot.pause()
        assert c.composer.region.height == 5
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0] == (Message("user", "a\nb\nc"),)
        await c.ready()
        assert c.composer.region.height == 3


@pytest.mark.parametrize("sent", ["\x1b\r", "\x1b[27;2;13~", "\x1b[13;2u"])
async def test_a_new_line_whatever_the_terminal_sends_for_it(chat, sent):
    """Alt+Enter of old, Shift+Enter of xterm and tmux, and of the Kitty protocol."""
    async with chat() as c:
        c.composer.insert("one")
        for event in XTermParser().feed(sent):
            c.composer.post_message(event)
        await c.until(lambda: c.composer.text == "one\n")
        assert not c.engine.asked


async def test_earlier_messages_come_back_with_up(chat):
    async with chat() as c:
        await c.ask("first")
        await c.ask("second")
        await c.pilot.press("up")
        assert c.composer.text == "second"
        await c.pilot.press("up")
        assert c.composer.text == "first"
        await c.pilot.press("down", "down")
        assert c.composer.text == ""


async def test_typing_goes_to_the_composer_wherever_the_focus_is(chat):
    async with chat() as c:
        c.app.screen.query_one("ChatLog").focus()
        await c.pilot.press("h", "i")
        assert c.composer.text == "hi"
        assert c.composer.has_focus


async def test_blank_messages_are_not_sent(chat):
    async with chat() as c:
        await c.pilot.press("enter", "space", "enter", "ctrl+j", "enter")
        await c.pilot.pause()
        assert not c.engine.asked


async def test_commands_are_suggested_and_completed(chat):
    async with chat() as c:
        await c.pilot.press("/", "c", "o")
        await c.sees("repeat the last reply with plain decoding")
        await c.pilot.press("l", "tab")
        assert c.composer.text == "/colours "
        await c.pilot.press("enter")
        await c.until(lambda: c.app.screen.query_one("ChatLog").colours)
        await c.until(lambda: "repeat the last reply" not in c.screen_text)


async def test_arrow_keys_choose_among_completions(chat):
    async with chat() as c:
        c.composer.insert("/co")
        await c.sees("/compare")
        await c.pilot.press("down", "down", "enter")
        await c.until(lambda: c.composer.text == "/compare ")
        c.composer.text = ""
        c.composer.insert("/")
        await c.pilot.press("up")
        await c.sees("/quit")  # the last of more than are in sight
        await c.pilot.press("tab")
        assert c.composer.text == "/quit "


async def test_tab_indents_a_line_of_several_and_never_takes_the_focus_away(chat):
    async with chat() as c:
        await c.pilot.press(*"def", "tab", "tab", "ctrl+j", "tab", *"pass")
        assert c.composer.text == "def\n    pass"
        assert c.composer.has_focus


async def test_a_click_on_a_suggestion_takes_it(chat):
    async with chat(size=(80, 24)) as c:
        c.composer.insert("/co")
        await c.sees("/compare")
        bar = c.app.screen.query_one("SuggestBar")
        await c.pilot.click(bar, offset=(4, 1))
        await c.until(lambda: c.composer.text == "/compare ")


async def test_keys_that_come_at_once_keep_their_order(chat):
    async with chat() as c:
        for key in ["a", "b", "backspace", "c", "left", "d", "ctrl+u", "e"]:
            c.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        await c.until(lambda: c.composer.text == "ec")


async def test_what_is_typed_right_after_enter_is_not_lost_and_nothing_is_sent_twice(chat):
    async with chat(Script("One."), Script("Two.")) as c:
        for key in ["h", "i", "enter", "enter", "y", "o"]:
            c.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        await c.until(lambda: c.composer.text == "yo")
        await c.ready()
        assert [asked[-1].content for asked in c.engine.asked] == ["hi"]


@pytest.mark.parametrize("before", [[], ["o", "n", "e", "enter"]])
async def test_enter_within_a_text_sends_it_and_keeps_what_is_typed_next(chat, before):
    async with chat(Script("One."), Script("Two."), Script("Three.")) as c:
        inside = [*"helo", "left", "l", "enter"]
        for key in [*before, *inside, *"next", "enter", *"on"]:
            c.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        sent = 2 + bool(before)
        await c.until(lambda: len(c.engine.asked) == sent and c.replies[-1].end)
        assert [asked[-1].content for asked in c.engine.asked[-2:]] == ["hello", "next"]
        assert c.composer.text == "on"


async def test_a_text_that_is_changed_while_it_is_sent_comes_back_with_up(chat):
    async with chat(Script("One.")) as c:
        for key in [*"hello", "enter", "left", "y"]:
            c.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        await c.until(lambda: c.replies and c.replies[-1].end)
        assert c.engine.asked[0][-1].content == "hello"
        assert c.composer.text == ""
        await c.pilot.press("up")
        assert c.composer.text == "hellyo"


async def test_ctrl_d_quits_from_an_empty_composer_only(chat):
    async with chat() as c:
        c.composer.insert("ab")
        await c.pilot.press("home", "ctrl+d")
        await c.until(lambda: c.composer.text == "b")
        await c.pilot.press("ctrl+d", "ctrl+d")
        await c.until(lambda: not c.app.is_running)


async def test_a_small_screen_says_how_what_waits_is_taken_back(chat):
    async with chat(Script(LONG, hold_at=2), size=(40, 12)) as c:
        await c.ask_and_hold("a first question that is long")
        await c.pilot.press("ctrl+n")
        for number in range(4):
            await c.type(f"message {number} has more words than a row has room for")
        await c.sees("(and 1 more)")
        assert "↑ takes the last back" in c.screen_text


async def test_what_waits_in_line_can_be_taken_back(chat):
    async with chat(Script(LONG, hold_at=3), Script("Fine.")) as c:
        await c.ask_and_hold("Hello")
        await c.type("one")
        await c.type("two")
        await c.sees("takes the last back")
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "two")
        assert list(c.session.chat.queue) == ["one"]


async def test_a_hint_is_over_when_the_next_message_is_sent(chat):
    async with chat(Script("Fine.")) as c:
        await c.pilot.press("f5")
        await c.until(lambda: "no question to answer yet" in c.stats)
        await c.ask("Hello")
        assert "tok/s" in c.stats


@pytest.mark.slow
async def test_a_file_goes_along(chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("remember\n", encoding="utf-8")
    async with chat() as c:
        await c.pilot.press(*"see @no", "tab")
        assert c.composer.text == "see @notes.txt "
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][0].content.endswith("notes.txt:\n```\nremember\n```")
        await c.pilot.press("f8", "enter")  # asked once more, it does not go along twice
        await c.until(lambda: len(c.engine.asked) == 2)
        assert c.engine.asked[1][-1].content.count("remember") == 1
        await c.ready()
        (tmp_path / "my notes.txt").write_text("spaces\n", encoding="utf-8")
        await c.pilot.press(*"see @my", "tab")
        assert c.composer.text == 'see @"my notes.txt" '
        await c.pilot.press(*"and (@notes.txt).", "enter")
        await c.until(lambda: len(c.engine.asked) == 3)
        assert "spaces" in c.engine.asked[2][-1].content
        (tmp_path / "bad").write_bytes(b"\xff")
        await c.ready()
        await c.pilot.press(*"see @bad", "enter")
        await c.until(lambda: "not text" in c.stats)
        assert c.composer.text == "see @bad"


async def test_what_a_terminal_would_obey_is_sent_to_the_model_alone(chat):
    text = "a\x1b[31mred\x9b1m\x07\tb"
    async with chat() as c:
        c.composer.post_message(events.Paste(text))
        await c.sees("a�[31mred�1m�")
        assert not any(
            char in s.text for line in strips(c.app) for s in line for char in "\x1b\x9b\x07"
        )
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][-1].content == text


async def test_a_pasted_megabyte_is_a_mark_until_it_is_sent_and_then_folded(chat):
    text = "".join(f"line {i} [red]x[/]\n" for i in range(55_000))
    async with chat() as c:
        c.composer.post_message(events.Paste(text))
        await c.until(lambda: c.composer.text == "[pasted text 1, 55000 lines]")
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][0].content == text.strip("\n")
        await c.ready()
        await c.sees("line 3 [red]x[/]")
        await c.sees("… 54992 more lines (click or F7, Alt+O to unfold)")
        await c.pilot.press("up")
        assert c.composer.text == "[pasted text 1, 55000 lines]"


def test_a_newline_at_the_end_of_a_paste_begins_no_line():
    assert Pastes().fold("x\n" * 4000) == "[pasted text 1, 4000 lines]"
    assert Pastes().fold("x\n" * 3999 + "x") == "[pasted text 1, 4000 lines]"
    assert Pastes().fold("x" * 4000 + "\n") == "[pasted text 1, 4001 characters]"


def test_a_paste_that_holds_the_mark_of_another_is_sent_as_it_is():
    pastes = Pastes()
    first = "[pasted text 2, 12 lines]" + "\n" * 12
    marks = pastes.fold(first), pastes.fold("x\n" * 12)
    assert pastes.unfold(" ".join(marks)) == first + " " + "x\n" * 12


async def test_the_editor_writes_the_message(chat, monkeypatch):
    monkeypatch.setattr("tui.input.long_text.command", lambda: ["ed"])
    monkeypatch.setattr("tui.input.long_text.edited", lambda text, words: f"{text} and more")
    async with chat() as c:
        monkeypatch.setattr(c.app, "suspend", contextlib.nullcontext)
        await c.pilot.press("h", "i", "ctrl+g")
        await c.until(lambda: c.composer.text == "hi and more")


async def test_after_an_editor_that_failed_the_terminal_is_taken_back(chat, monkeypatch):
    left = []

    @contextlib.contextmanager
    def suspend():
        yield  # as Textual's: what is raised here goes past the rest
        left.append("taken back")

    monkeypatch.setattr(
        "tui.input.long_text.command", lambda: [sys.executable, "-c", "raise SystemExit(3)"]
    )
    async with chat() as c:
        monkeypatch.setattr(c.app, "suspend", suspend)
        await c.pilot.press("h", "i", "ctrl+g")
        await c.until(lambda: "ended with status 3; nothing was changed" in c.stats)
        assert c.composer.text == "hi"
        assert left


async def test_no_editor_is_one_line(chat, monkeypatch):
    monkeypatch.setenv("VISUAL", "no-such-editor")
    async with chat() as c:
        await c.pilot.press("h", "ctrl+g")
        await c.until(lambda: "there is no editor" in c.stats)
        assert c.composer.text == "h"


async def test_the_last_code_block_is_copied(chat):
    async with chat(Script("Look:\n\n```py\nx = 1\n```\n"), Script("None.")) as c:
        await c.ask("Hello")
        await c.type("/copy code")
        await c.until(lambda: c.app.clipboard == "x = 1\n")
        await c.ask("Again")
        await c.type("/copy code")
        await c.until(lambda: "no code block" in c.stats)


async def test_a_key_of_the_configuration_works_and_help_names_it(chat):
    async with chat(keys={"chat.colours": "f9"}, size=(100, 70)) as c:
        await c.pilot.press("f9")
        await c.until(lambda: c.app.screen.query_one("ChatLog").colours)
        await c.pilot.press("f1")
        await c.sees("F9")
