"""The interface, driven by keys, over a fake engine."""

import contextlib
import sys
import threading
import webbrowser

import pytest
from fake_engine import FakeEngine, Script, conversation
from textual import events
from textual._xterm_parser import XTermParser
from textual.geometry import Size

from localspec.chats.values import Chat, started
from localspec.config import paths
from localspec.config import settings as config_settings
from localspec.core.events import Message, Round, Speculation, Token
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.values import Origin
from localspec.errors import (
    ContextError,
    DeviceLostError,
    DeviceMemoryError,
    ModelFileError,
    OutOfMemoryError,
    UsageError,
    WorkerError,
    WorkerLostError,
)
from localspec.grammar import reading
from localspec.loading.options import Options
from localspec.race.speeds import TimedRun
from tui.input import keymap
from tui.input.help_rows import help_rows
from tui.session import engine_slot
from tui.session.commands import SPECS, told_here
from tui.session.conversation import ChatTurn, Conversation
from tui.session.ports import Phase
from tui.session.reply_record import details, restore
from tui.terminal.theme import wanted
from tui.widgets import chat_log
from tui.widgets.chat_log import ChatLog
from tui.widgets.lines import Lines
from tui.widgets.message import QuestionView, ReplyView

LONG = "One two three four five six seven eight nine ten eleven twelve.\n\n- a\n- b\n\nThe end."


async def test_a_reply_is_streamed_and_ends_as_markdown(chat):
    async with chat(Script(LONG, hold_at=3)) as c:
        await c.ask_and_hold("Hello")
        await c.sees("seven")
        assert "nine" not in c.screen_text
        assert c.session.engine.phase is Phase.REPLYING
        c.engine.go.set()
        await c.until(lambda: c.replies[-1].end)
        await c.ready()
        assert c.replies[-1].text == LONG
        assert c.app.screen.query_one(ReplyView).markdown.source == LONG
        await c.sees("• a")
        await c.sees("18 tokens")


async def test_stop_keeps_what_was_said_and_the_next_question_knows_it(chat):
    async with chat(Script(LONG, hold_at=3), Script("Fine.")) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        partial = c.replies[0].text
        assert partial == "One two three four five six seven eight"
        await c.sees(partial)
        await c.sees("stopped by you")
        await c.ask("And?")
        assert c.engine.asked[1] == (
            Message("user", "Hello"),
            Message("assistant", partial),
            Message("user", "And?"),
        )


async def test_three_turns_keep_the_context(chat):
    async with chat(Script("A"), Script("B"), Script("C"), system="Be kind.") as c:
        for text in ("1", "2", "3"):
            await c.ask(text)
        roles = [message.role for message in c.engine.asked[2]]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert [message.content for message in c.engine.asked[2]][1:] == ["1", "A", "2", "B", "3"]


async def test_text_that_looks_like_markup_is_shown_as_it_is(chat):
    text = "[red]x[/] [link=y]z [/nothing] <b>tag</b> \x1b[31m"
    async with chat(Script(text), Script(f"{text} and an open block", hold_at=1)) as c:
        await c.ask(text)
        await c.until(lambda: c.screen_text.count("[red]x[/] [link=y]z [/nothing] <b>tag</b>") == 2)
        await c.ask_and_hold("again")
        await c.until(lambda: c.screen_text.count("[red]x[/] [link=y]z") == 4)  # and the title
        await c.pilot.press("ctrl+t")
        await c.until(lambda: c.screen_text.count("[red]x[/] [link=y]z") == 4)  # and the title
        assert "\x1b" not in c.screen_text


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
    strips = c.app.screen._compositor.render_strips()
    segments = [s for strip in strips for s in strip if any(map(str.isalnum, s.text))]
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
            for strip in c.app.screen._compositor.render_strips()
            for segment in strip
            if segment.text.strip() and segment.style is not None
        ]
        assert styles
        for style in styles:
            assert style.color.is_default or style.color != style.bgcolor


async def test_the_engine_dies_and_starts_again_with_the_conversation_kept(chat):
    async with chat(Script(LONG, hold_at=3), Script("Back.")) as c:
        await c.ask_and_hold("Hello")
        c.engine.die()
        await c.until(lambda: "engine stopped" in c.stats)
        await c.sees("signal 9")
        await c.sees("The conversation is saved")
        await c.sees("cut short")
        await c.type("Still there?")
        await c.sees("sent when the engine runs again")
        await c.pilot.press("ctrl+r")
        await c.until(lambda: len(c.replies) == 2 and c.replies[-1].end)
        assert c.engine.opened == 2
        assert [message.content for message in c.engine.asked[1]] == [
            "Hello",
            "One two three four five six seven eight",
            "Still there?",
        ]
        await c.sees("Back.")


@pytest.mark.parametrize(
    ("error", "smaller"), [(DeviceMemoryError("out of memory"), 1), (DeviceLostError("lost"), 0)]
)
async def test_a_failed_gpu_is_named_and_the_engine_starts_again_by_itself(chat, error, smaller):
    first, second = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine([Script("Back.")])
    async with chat(engine=first) as c:
        opened = []
        c.session.engine.options = Options("story-target")
        c.session.engine.reopen = lambda options: opened.append(options) or second
        await c.ask_and_hold("Hello")
        first.die(error)
        await c.sees(str(error))
        await c.sees("The conversation is saved")
        await c.ready()
        assert [options.smaller for options in opened] == [1] * smaller
        c.engine = second if smaller else first
        c.engine.scripts = [Script("Back.")]
        await c.pilot.press("f9")
        await c.sees("Back.")
        assert "One two three" in c.screen_text, "what had arrived is lost"


async def test_a_worker_that_is_lost_is_waited_for(chat, monkeypatch):
    monkeypatch.setattr(engine_slot, "_BACK_OFF_S", (0, 0, 0, 0))
    async with chat(Script(LONG, hold_at=3), Script("Back.")) as c:
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda _: pytest.fail("the model was loaded elsewhere")
        await c.ask_and_hold("Hello")
        c.engine.open_errors = [WorkerError("nothing listens"), WorkerLostError("lost once more")]
        c.engine.die(WorkerLostError("a worker has ended"))
        for text in ("a worker has ended", "nothing listens. Trying", "lost once more. Trying"):
            await c.sees(text)
        await c.ready()
        await c.pilot.press("f9")
        await c.sees("Back.")
        assert "One two three" in c.screen_text, "what had arrived is lost"


async def test_where_a_worker_stays_away_the_model_is_loaded_here(chat, monkeypatch):
    monkeypatch.setattr(engine_slot, "_BACK_OFF_S", (0, 0))
    first, second = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine([Script("Here.")])
    async with chat(engine=first) as c:
        opened = []
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda options: opened.append(options.rpc) or second
        await c.ask_and_hold("Hello")
        first.open_error = WorkerError("nothing listens")
        first.die(WorkerLostError("a worker has ended"))
        await c.sees("The workers are not back")
        await c.ready()
        assert opened == [None]
        c.engine = second
        await c.pilot.press("f9")
        await c.sees("Here.")


async def test_where_it_does_not_fit_here_the_workers_are_tried_again(chat, monkeypatch):
    monkeypatch.setattr(engine_slot, "_BACK_OFF_S", (0, 0))
    first, here = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine()
    here.open_error = OutOfMemoryError("16 GB are needed and 8 GB are free")
    third = FakeEngine([Script("Back.")])
    async with chat(engine=first) as c:
        engines = [here, third]
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda _: engines.pop(0)
        await c.ask_and_hold("Hello")
        first.open_error = WorkerError("nothing listens")
        first.die(WorkerLostError("a worker has ended"))
        await c.sees("16 GB are needed")
        await c.until(lambda: c.session.engine.phase is Phase.DEAD)
        assert c.session.engine.options.rpc == "there:50052"
        c.engine = third
        await c.pilot.press("ctrl+r")
        await c.ready()
        await c.pilot.press("f9")
        await c.sees("Back.")


async def test_the_engine_dies_while_idle_and_does_not_come_up_again(chat):
    async with chat() as c:
        c.engine.die()
        await c.sees("signal 9")
        c.engine.open_error = ModelFileError("the file is damaged")
        await c.pilot.press("ctrl+r")
        await c.sees("the file is damaged")
        assert c.app.is_running
        assert c.session.engine.phase is Phase.DEAD


async def test_a_failed_reply_is_one_line_and_the_next_one_works(chat):
    error = UsageError("the context holds 4")
    async with chat(Script(error=error), Script("Fine.")) as c:
        await c.ask("Hello")
        await c.sees("context holds 4")
        await c.ask("Again")
        await c.sees("Fine.")
        assert c.engine.asked[1] == (Message("user", "Again"),)  # else it would be too long as well
        await c.sees("not answered")


async def test_why_a_reply_cannot_go_on_now_is_said(chat):
    async with chat(Script(LONG, hold_at=3)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("f9")
        await c.until(lambda: "until the model is loaded and not replying" in c.stats)
        c.engine.go.set()
        await c.ready()
        c.engine.die()
        await c.pilot.press("f9")
        await c.until(lambda: "until the model is loaded and not replying" in c.stats)


async def test_a_question_that_failed_can_be_asked_once_more(chat):
    async with chat(Script(error=UsageError("not now")), Script("Fine.")) as c:
        await c.ask("Hello")
        await c.pilot.press("f5")
        await c.sees("Fine.")
        assert c.engine.asked[1] == (Message("user", "Hello"),)


async def test_what_cannot_be_opened_ends_the_interface_with_its_exit_code(chat):
    engine = FakeEngine(open_error=ModelFileError("not a GGUF"))
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: not c.app.is_running or c.app.return_code is not None)
        assert c.app.return_code == 7
        assert str(c.app.failure) == "not a GGUF"


async def test_typing_while_it_loads_is_sent_when_it_is_ready(chat):
    engine = FakeEngine([Script("Hi.")])
    engine.loaded.clear()
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: "loading story-target 40%" in c.stats)
        await c.type("Early")
        await c.sees("sent when the model is ready")
        engine.loaded.set()
        await c.until(lambda: c.replies and c.replies[-1].end)
        await c.sees("Hi.")


async def test_sending_while_the_model_speaks_waits_in_line(chat):
    async with chat(Script(LONG, hold_at=2), Script("Second."), Script("Third.")) as c:
        await c.ask_and_hold("one")
        await c.type("two")
        await c.type("three")
        await c.sees("↳ three")
        await c.sees("↳ two  (sent next")
        assert len(c.engine.asked) == 1
        c.engine.go.set()
        await c.until(lambda: len(c.replies) == 3 and c.replies[-1].end)
        await c.ready()
        assert [reply.text for reply in c.replies] == [LONG, "Second.", "Third."]
        await c.until(lambda: "↳" not in c.screen_text)


async def test_a_new_chat_while_the_model_speaks(chat):
    async with chat(Script(LONG, hold_at=2), Script("Clean.")) as c:
        await c.ask_and_hold("one")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: "One two" not in c.screen_text)
        await c.type("two")
        await c.sees("sent after the reply in one")
        c.engine.go.set()
        await c.until(lambda: c.replies and c.replies[-1].text == "Clean.")
        await c.ready()
        assert c.engine.asked[-1] == (Message("user", "two"),)
        await c.until(lambda: len(c.app.screen.query(ReplyView)) == 1)


async def test_resizing_while_it_speaks(chat):
    async with chat(Script(LONG * 6, hold_at=20)) as c:
        await c.ask_and_hold("Hello")
        for size in ((60, 15), (160, 50), (80, 24)):
            await c.pilot.resize_terminal(*size)
            await c.pilot.pause()
        c.engine.go.set()
        await c.ready()
        await c.sees("The end.")


async def test_the_smallest_screen_holds_everything_that_matters(chat):
    async with chat(Script(LONG, hold_at=5), size=(60, 15)) as c:
        await c.ask_and_hold("Hello")
        await c.sees("Stop")
        await c.sees("tok/s")
        await c.sees("guesses right")
        lines = c.screen_text.splitlines()
        assert len(lines) == 15
        assert "guesses right" in lines[-2]
        assert "tok/s" in lines[-2]
        assert "Stop" in lines[-1]
        assert "Quit" in lines[-1]
        assert any("twelve" in line for line in lines)


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


async def test_commands(chat):
    async with chat() as c:
        for text, seen in [
            ("/temp 0", "temperature 0 from the next reply on"),
            ("/seed 7", "seed 7 from now on"),
            ("/system You are a cat.", "system prompt set"),
            ("/draft off", "plain decoding from now on"),
        ]:
            await c.type(text)
            await c.until(lambda seen=seen: seen in c.screen_text)
        assert not c.engine.asked
        await c.ask("Hello")
        settings = c.session.settings
        assert (settings.sampling.temperature, settings.seed, settings.draft) == (0.0, 7, False)
        assert c.engine.asked[0][0] == Message("system", "You are a cat.")
        await c.type("/new")
        await c.until(lambda: not c.session.chat.conversation.turns)


async def test_the_chat_goes_on_while_a_schema_is_tried_out(chat, monkeypatch):
    go_on = threading.Event()

    def checked(text: str) -> GrammarSpec:
        assert go_on.wait(60)
        return GrammarSpec.schema(text)

    monkeypatch.setattr(reading, "schema", checked)
    async with chat() as c:
        await c.type('/schema {"type": "object"}')
        c.composer.insert("typed meanwhile")
        await c.sees("typed meanwhile")
        assert c.session.settings.grammar is None
        go_on.set()
        await c.sees("replies fit a schema from the next one on")


async def test_the_system_prompt_is_shown_set_and_removed(chat):
    async with chat() as c:
        await c.type("/system")
        await c.sees("no system prompt; /system TEXT sets one")
        await c.type("/system You are a cat.")
        await c.sees("system: You are a cat.")
        await c.type("/system")
        await c.sees("system prompt: You are a cat.")
        await c.sees("/system TEXT sets another, /system none has none")
        assert c.composer.text == ""  # else the next message would join it
        await c.ask("Hello")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: "same system prompt as before; /system none" in c.stats)
        await c.type("/system none")
        await c.until(lambda: c.session.chat.conversation.system is None)


async def test_thinking_is_switched_for_the_next_replies_and_their_repetition(chat):
    async with chat(Script("One."), Script("One.")) as c:
        await c.type("/think")
        await c.sees("thinking auto")
        await c.type("/think off")
        await c.sees("thinking off from the next reply on")
        await c.ask("Hello")
        assert c.session.settings.request(()).thinking is False
        assert c.replies[-1].recipe.request(draft=False).thinking is False


async def test_help_is_over_the_chat_and_is_searched_by_typing(chat):
    async with chat(Script(LONG), size=(80, 24)) as c:
        await c.ask("Hello")
        before = c.screen_text
        await c.pilot.press("f1")
        await c.sees("F3")
        assert "F9" not in c.screen_text
        await c.pilot.press("pagedown")
        await c.sees("/resume [ID]")
        await c.pilot.press("pagedown", "pagedown")
        await c.sees("write in $EDITOR")
        await c.pilot.press(*"f9")
        await c.until(lambda: "/resume" not in c.screen_text and "F9" in c.screen_text)
        await c.pilot.press("backspace", "backspace", *"setting above")
        await c.sees("no line contains this")
        await c.pilot.resize_terminal(40, 12)  # a column for both has no room
        await c.until(lambda: "/resume [ID]" not in c.screen_text)
        await c.pilot.press("ctrl+u", *"continue another")
        await c.sees("/resume [ID]")
        await c.pilot.resize_terminal(80, 24)
        await c.leave()
        assert c.screen_text == before


async def test_advice_for_the_shell_is_told_with_the_commands_of_the_chat():
    told = told_here("no model called 'x'; `localspec models` lists all")
    assert told == "no model called 'x'; /models lists all"
    assert told_here("`localspec pull org/x` fetches it") == "/pull org/x fetches it"
    assert told_here("no chat; `localspec chats list` shows them") == "no chat; /chats shows them"
    assert told_here("`localspec pull --force x`") == "`localspec pull --force x`"


async def test_a_wrong_command_stays_in_the_composer(chat):
    async with chat() as c:
        await c.pilot.press(*"/tmep", "enter")
        await c.until(lambda: "there is no /tmep" in c.stats)
        assert c.composer.text == "/tmep"
        assert not c.engine.asked


async def test_a_path_is_not_a_command(chat):
    async with chat() as c:
        await c.ask("/usr/bin/env is what?")
        assert c.engine.asked[0][0].content == "/usr/bin/env is what?"


@pytest.mark.parametrize(
    ("speculation", "width"),
    [
        (Speculation("off", "vocabulary differs at id 17"), 60),
        (Speculation("parked", "plain decoding is faster here"), 100),
    ],
)
async def test_why_nothing_is_drafted_is_always_in_sight(chat, speculation, width):
    async with chat(Script(LONG, speculation=speculation), size=(width, 20)) as c:
        await c.ask("Hello")
        await c.sees(f"not drafting: {speculation.reason}")


async def test_notices_are_shown_and_that_messages_are_left_out_is_said_once_in_a_chat(chat):
    async with chat(Script("Yes.", notice="the 2 oldest messages were left out")) as c:
        for number in range(3):
            await c.ask(f"Hello {number}")
            await c.ready()
        assert c.screen_text.count("the 2 oldest messages were left out") == 1


async def test_the_bell_rings_where_a_reply_ends_unseen(chat, monkeypatch):
    rung = []
    async with chat(Script("Yes."), Script(LONG, hold_at=2)) as c:
        monkeypatch.setattr(c.app, "bell", lambda: rung.append(1))
        await c.ask("Hello")
        await c.ready()
        assert not rung
        await c.ask_and_hold("Again")
        c.app.post_message(events.AppBlur())
        await c.until(lambda: not c.app.app_focus)
        c.engine.go.set()
        await c.ready()
        await c.until(lambda: rung == [1])


async def test_a_link_without_a_browser_says_so(chat, monkeypatch):
    def none(using=None):
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    async with chat(Script("See [the paper](https://example.org/a).")) as c:
        await c.ask("Hello")
        await c.ready()
        await c.pilot.press("f7", "alt+o")
        await c.sees("no browser was found here to open https://example.org/a")


async def test_only_the_newest_messages_are_widgets_and_older_ones_load(chat, monkeypatch):
    monkeypatch.setattr(chat_log, "KEEP", 4)
    monkeypatch.setattr(chat_log, "SLACK", 4)
    async with chat(size=(80, 15)) as c:
        for i in range(7):
            c.session.send(f"question {i}")
            await c.until(lambda i=i: len(c.replies) > i and c.replies[i].end)
        await c.ready()
        await c.until(lambda: 4 <= len(c.app.screen.query("QuestionView, ReplyView")) <= 8)
        while len(views := c.app.screen.query("QuestionView, ReplyView")) < 14:
            count = len(views)
            await c.pilot.press("ctrl+o")
            await c.until(lambda n=count: len(c.app.screen.query("QuestionView, ReplyView")) > n)
        first = c.app.screen.query(QuestionView).first()
        assert first.text == "question 0"
        await c.pilot.press("ctrl+home")
        await c.sees("question 0")
        await c.until(lambda: "load older" not in c.screen_text)


async def test_a_jump_to_the_oldest_message_mounts_few_and_reading_on_loads_the_next(
    chat, monkeypatch
):
    monkeypatch.setattr(chat_log, "KEEP", 4)
    monkeypatch.setattr(chat_log, "SLACK", 4)
    messages = conversation(200)
    resumed = Chat(started(), messages)
    async with chat(Script("the reply"), resume=resumed, size=(80, 15)) as c:
        await c.sees("message number 199")
        await c.pilot.press("ctrl+home")
        await c.sees("message number 0")
        assert len(c.app.screen.query("QuestionView, ReplyView")) == 4
        await c.pilot.press("pagedown")
        await c.until(lambda: len(c.app.screen.query("QuestionView, ReplyView")) == 8)
        await c.pilot.press("ctrl+end")
        await c.sees("message number 199")
        await c.pilot.press("ctrl+home")
        await c.sees("message number 0")
        await c.type("a question from up here")
        await c.sees("the reply")


async def test_the_search_in_a_chat_goes_from_place_to_place(chat):
    async with chat(resume=Chat(started(), conversation(200)), size=(80, 15)) as c:
        await c.sees("message number 199")
        await c.pilot.press("ctrl+f", *"number 15")
        await c.sees("11 of 11")
        await c.sees("message number 159")
        await c.pilot.press("up")
        await c.sees("10 of 11")
        await c.sees("message number 158")
        await c.pilot.press("down", "down")
        await c.sees("1 of 11")
        await c.sees("message number 15")
        assert c.app.screen.get_selected_text() == "number 15"
        await c.pilot.press(*"x")
        await c.sees("not found")
        await c.pilot.press("escape", *"typed")
        await c.until(lambda: c.composer.text == "typed")


async def test_links_and_folded_texts_are_reached_by_keys(chat, monkeypatch):
    opened = []
    text = "<think>\nfirst this\n</think>\n\nSee [the paper](https://example.org/a)."
    async with chat(Script(text)) as c:
        monkeypatch.setattr(c.app, "open_url", opened.append)
        await c.ask("\n".join(f"line {n}" for n in range(12)))
        await c.pilot.press("f7")
        await c.until(lambda: "https://example.org/a" in c.stats)
        await c.pilot.press("alt+o")
        await c.until(lambda: opened == ["https://example.org/a"])
        await c.pilot.press("f7", "alt+o")
        await c.sees("first this")
        assert "line 11" not in c.screen_text
        await c.pilot.press("f7", "alt+o")
        await c.sees("line 11")


async def test_code_folds_by_key_and_is_copied_whole_while_folded(chat):
    code = "\n".join(f"value_{n} = {n}" for n in range(40))
    block = "\n".join(f"  {line}" for line in ["```python", *code.split("\n"), "```"])
    text = f"Here:\n\n- so:\n{block}\n\nThe end."
    async with chat(Script(text)) as c:
        await c.ask("Code?")
        await c.sees("value_39 = 39")
        await c.pilot.press("f7")
        await c.until(lambda: "40 lines of code" in c.stats)
        await c.pilot.press("alt+o")
        await c.sees("… 36 more lines")
        assert "value_3 = 3" in c.screen_text
        assert "value_4 = 4" not in c.screen_text
        await c.until(lambda: c.app.screen.get_selected_text() == code)
        await c.pilot.press("alt+o")
        await c.sees("value_4 = 4")
        await c.pilot.press("alt+o", "ctrl+f", *"value_20")
        await c.sees("value_20 = 20")  # the search unfolds what it finds


async def test_scrolling_back_while_it_speaks_stays_where_it_is(chat):
    async with chat(Script(LONG * 8, hold_at=20), size=(80, 24)) as c:
        await c.ask_and_hold("Hello")
        c.engine.go.set()
        await c.ready()
        log = c.app.screen.query_one("ChatLog")
        await c.pilot.press("pageup")
        await c.until(lambda: log.scroll_y < log.max_scroll_y)
        where = log.scroll_y
        c.engine.pace = 0.01
        c.engine.scripts.append(Script("Newer words. " * 200))
        c.session.send("More")
        await c.until(lambda: len(c.replies) == 2 and len(c.replies[1].tokens) > 40)

        def drawn():
            return len(c.app.screen.query(ReplyView).last().markdown.tail.text)

        before = drawn()
        await c.until(lambda: len(c.replies[1].tokens) > 120)
        assert log.scroll_y == where
        assert drawn() == before  # nothing is drawn for nobody
        await c.pilot.press("ctrl+end")
        await c.until(lambda: drawn() > before)
        await c.until(lambda: log.scroll_y == log.max_scroll_y)


async def test_quit_ends_the_engine(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("ctrl+q")
        await c.until(lambda: not c.app.is_running)
    assert c.engine.closed
    assert c.app.return_code == 0


async def test_ctrl_c_once_stops_twice_quits(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("ctrl+c")
        await c.until(lambda: c.replies[-1].end == "interrupt")
        await c.until(lambda: "again to quit" in c.stats)
        assert c.app.is_running
        await c.pilot.press("ctrl+c")
        await c.until(lambda: not c.app.is_running)


async def test_ctrl_c_copies_a_selection(chat):
    async with chat() as c:
        await c.pilot.press(*"hello")
        c.composer.select_all()
        await c.pilot.press("ctrl+c", "ctrl+c")
        assert c.app.clipboard == "hello"
        assert c.app.is_running


async def test_what_is_selected_with_the_mouse_in_a_reply_is_copied(chat):
    text = "One two three.\n\n- first *item*\n- second\n\n```py\nx = 1\n```\n"
    async with chat(Script(text)) as c:
        await c.ask("Hello")
        await c.settled()  # the strip appears and moves it
        closed = c.app.screen.query_one(ReplyView).markdown.closed
        await c.pilot.mouse_down(closed, offset=(4, 0))
        await c.pilot.hover(closed, offset=(4, 5))
        await c.pilot.mouse_up(closed, offset=(4, 5))
        await c.pilot.press("ctrl+c")
        await c.until(lambda: c.app.clipboard)
        assert c.app.clipboard.startswith("two three.\n\nfirst item\nsecond\n\nx =")
        assert c.app.is_running


async def test_a_link_is_told_to_the_application_and_only_pages_are_opened(chat, monkeypatch):
    text = "[page](https://example.org) [file](file:///etc/passwd)"
    async with chat(Script(text)) as c:
        opened = []
        monkeypatch.setattr(c.app, "open_url", opened.append)
        await c.ask("Hello")
        await c.settled()  # the strip appears and moves it
        closed = c.app.screen.query_one(ReplyView).markdown.closed
        await c.pilot.click(closed, offset=(1, 0))
        await c.pilot.click(closed, offset=(6, 0))
        await c.until(lambda: opened)
        await c.pilot.pause(0.1)
        assert opened == ["https://example.org"]


async def test_copy_the_last_reply(chat):
    async with chat(Script("Keep *this*.")) as c:
        await c.ask("Hello")
        await c.type("/copy")
        await c.until(lambda: c.app.clipboard == "Keep *this*.")


async def test_idle_means_idle(chat):
    async with chat() as c:
        await c.ask("Hello")
        await c.idle()
        await c.type("/seed 7")
        await c.sees("seed 7 from now on")
        await c.idle()


async def test_the_palette_offers_the_same_actions(chat):
    async with chat() as c:
        names = {command.title for command in c.app.get_system_commands(c.app.screen)}
        assert {
            "New",
            "Colours",
            "Compare",
            "Details",
            "Theme",
            "Quit",
            "Continue",
            "Stop",
        } <= names
        assert {name.capitalize() for name in SPECS} <= names
        await c.pilot.press("ctrl+p")
        await c.pilot.press(*"title")
        found = c.app.screen.query_one("CommandList")
        await c.until(
            lambda: found.option_count and "Title" in str(found.get_option_at_index(0).prompt)
        )
        await c.pilot.press("enter")
        await c.until(lambda: c.composer.text == "/title ")


async def test_a_theme_is_kept_for_the_next_time(chat):
    async with chat() as c:
        await c.type("/theme")
        await c.sees("localspec-light")
        await c.leave()
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


async def test_details_on_a_key_below_or_beside(chat):
    async with chat(Script(LONG), size=(100, 24)) as c:
        await c.ask("Hello")
        await c.pilot.press("f2")
        await c.sees("draft 4.0, verify 15.0, else 1.0")
        await c.sees("drafted     ")
        log, panel = c.app.screen.query_one("ChatLog"), c.app.screen.query_one("Details")
        assert panel.region.y >= log.region.bottom
        await c.pilot.resize_terminal(200, 50)
        await c.until(lambda: panel.region.x >= log.region.right)
        await c.sees("by position")
        await c.pilot.press("f2")
        await c.until(lambda: "by position" not in c.screen_text)
        assert "drafted     " not in c.screen_text
        await c.pilot.press("f6")
        await c.sees("drafted     ")  # a high screen has room for the strip


async def test_compare_makes_the_reply_again_plainly_with_the_same_seed(chat):
    async with chat(Script(LONG), Script(LONG), size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("identical: all 18 tokens are the same")
        await c.ready()
        assert c.engine.drafted == [True, False, True, False, True]
        assert all(asked == c.engine.asked[0] for asked in c.engine.asked)
        assert not c.engine.examined
        drafted, plainly = c.app.screen.query("CompareScreen TextFlow")
        assert plainly.region.x > drafted.region.right - 2
        await c.pilot.resize_terminal(60, 24)
        await c.until(lambda: plainly.region.y > drafted.region.y)
        await c.pilot.press("escape")
        await c.until(lambda: c.app.screen.query("Composer"))
        assert len(c.replies) == 1


async def test_compare_names_the_first_difference_and_its_gap(chat):
    other = LONG.replace("five", "[red]5[/]")
    async with chat(Script(LONG), Script(other), size=(120, 30)) as c:
        await c.ask("Hello")
        await c.type("/compare")
        await c.sees("the first 4 tokens are the same")
        await c.sees("drafting wrote ' five' and plain decoding 'chosen', 0.0012 logits apart")
        assert [len(tokens) for tokens in c.engine.examined] == [5]
        await c.sees("[red]5[/]")


async def test_a_long_reason_in_the_details_stays_in_its_column(chat):
    reason = " ".join(["why"] * 40)
    async with chat(Script(LONG, speculation=Speculation("parked", reason))) as c:
        await c.pilot.press("f2")
        await c.ask("Hello")
        await c.sees("drafting    parked: why")
        await c.sees(f"\n{' ' * 14}why why why why")
        await c.pilot.resize_terminal(60, 40)
        await c.sees("tok/s · plain: why why why")
        await c.sees(f"drafting    parked: {'why ' * 7}why\n")


async def test_a_hint_that_is_too_long_for_its_line_is_whole_in_the_conversation(chat):
    async with chat(size=(60, 20)) as c:
        for _ in range(2):
            await c.type("/set temperature much")
            await c.until(lambda: "temperature must be a number" in c.stats)
            await c.pilot.press("ctrl+u")
            c.app.screen.feedback.hint(
                "a reason " + "that is longer than the line " * 3 + "THE-END"
            )
            await c.sees("THE-END")
            await c.ready()
        assert c.screen_text.count("a reason") == 1


class Plain(Script):
    """A reply without any draft."""

    def rounds(self):
        for tokens in super().rounds():
            yield from ([Token(t.token, t.text, Origin.PLAIN, None)] for t in tokens)


async def test_a_reply_without_drafts_is_not_compared_as_if_it_had_some(chat):
    plain = Plain(LONG)
    async with chat(plain, *[Plain(LONG)] * 4) as c:
        await c.ask("Hello")
        assert "×" not in c.stats
        await c.pilot.press("f3")
        await c.sees("identical: all 18 tokens are the same; nothing was drafted just now")


async def test_a_comparison_measures_both_speeds_now_whatever_the_reply_once_took(chat):
    slow, plainly, drafted = (Script(LONG, seconds=s) for s in (9.0, 0.05, 0.02))
    async with chat(slow, plainly, drafted, plainly, drafted, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("all 18 tokens are the same; with drafting it is 2.5× as fast")
        await c.sees("with drafting  128.6 tok/s now")
        await c.sees("plain decoding  51.4 tok/s now")
        await c.pilot.press("escape")
        await c.ready()
        assert "×" not in c.stats  # the status line is of the reply as it was made


async def test_a_comparison_of_equal_runs_that_differ_gives_no_factor(chat):
    runs = [Script(LONG, seconds=s) for s in (0.02, 0.05, 0.02, 0.08, 0.02)]
    async with chat(*runs, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("this machine is too busy just now to compare speeds")
        assert "× as fast" not in c.screen_text


async def test_a_comparison_of_few_tokens_gives_no_factor(chat):
    async with chat(*[Script("Only a few words.")] * 5, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("the reply is too short to compare speeds")


def test_a_hiccup_of_the_machine_does_not_change_a_measured_speed():
    def done(seconds, drafted):
        return Round(drafted, 1, 1, 2, 0, 0, seconds, "model", 10, Speculation("on"))

    run, smooth = TimedRun(draft=True), TimedRun(draft=True)
    for number in range(20):
        run.add(done(5.0 if number == 7 else 0.02 + 0.02 * (number % 2), number % 2))
        smooth.add(done(0.02 + 0.02 * (number % 2), number % 2))
    assert run.speed == pytest.approx(smooth.speed)


async def test_a_long_verdict_is_whole_and_both_replies_scroll_together(chat):
    text = "\n".join(f"line {i} of a long reply" for i in range(60))
    other = text.replace("line 2 of", "line 2 or")
    async with chat(Script(text), Script(other), size=(60, 20)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("verify` measures by how")
        drafted, plainly = c.app.screen.query("VerticalScroll")
        await c.ready()  # the result of the timed runs may take another line
        await c.until(lambda: drafted.scroll_y == plainly.scroll_y > 5)
        drafted.scroll_to(y=5, animate=False)
        await c.until(lambda: plainly.scroll_y == 5)
        plainly.scroll_to(y=9, animate=False)
        await c.until(lambda: drafted.scroll_y == 9)


async def test_why_a_reply_cannot_be_looked_at_now_is_said(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2)) as c:
        await c.ask("Hello")
        await c.ask_and_hold("More")
        await c.pilot.press("f3")
        await c.until(lambda: "wait for the reply to end" in c.stats)
        await c.pilot.press("alt+left")
        await c.until(lambda: "wait for the reply to end" in c.stats)
        c.engine.die()
        await c.sees("The conversation is saved")
        await c.pilot.press("f3")
        await c.until(lambda: "the engine is not running" in c.stats)


async def test_a_stopped_reply_is_compared_as_far_as_it_went(chat):
    async with chat(Script(LONG, hold_at=3), Script(LONG), size=(120, 30)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        await c.pilot.press("f3")
        await c.sees("identical: all 8 tokens are the same")


async def test_leaving_a_comparison_stops_it_and_the_chat_goes_on(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2), Script("Next.")) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: c.engine.holding)
        await c.sees("tokens, all the same")
        await c.pilot.press("escape")
        await c.ready()
        await c.ask("More")
        await c.sees("Next.")


async def test_an_engine_that_dies_in_a_comparison_is_said(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: c.engine.holding)
        c.engine.die()
        await c.sees("the comparison failed: the engine stopped")
        await c.pilot.press("escape")
        await c.sees("The conversation is saved")


async def test_nothing_to_compare_is_said(chat):
    async with chat(Script(error=UsageError("not now"))) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: "no reply that can be repeated" in c.stats)


async def test_a_cursor_over_tokens_shows_p_q_and_alternatives(chat):
    async with chat(Script(LONG), size=(110, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("alt+left")
        await c.sees("token 18/18")
        await c.sees("p 0.750  q 0.500  raw 70.0%")
        await c.sees("' other' 20.0%")
        await c.pilot.press("alt+left", "alt+left")
        await c.sees("token 16/18")
        await c.until(lambda: c.engine.examined[-1] == c.replies[0].recipe.reply.tokens[:16])
        flow = c.app.screen.query_one(ReplyView).flow
        marked = [
            line.text[span.start : span.end]
            for line in flow.lines
            for span in line.content.spans
            if span.style == "reverse"
        ]
        assert "".join(marked).strip() == "b"
        await c.pilot.press("ctrl+t")
        await c.until(lambda: "token 16/18" not in c.screen_text)


async def test_a_click_on_a_token_moves_the_cursor_there(chat):
    async with chat(Script(LONG), Script("Other words."), size=(110, 40)) as c:
        await c.ask("Hello")
        await c.ask("More")
        await c.pilot.press("ctrl+t")
        await c.sees("- a")
        await c.settled()
        flow = c.app.screen.query(ReplyView).first().flow
        await c.pilot.click(flow, offset=(LONG.index("four") + 1, 0))
        await c.sees("token 4/18  ' four'  corrected, the guess was wrong  p 0.750")
        await c.pilot.click(flow, offset=(LONG.index("five") + 1, 0))
        await c.sees("token 5/18  ' five'  found in earlier text  p 0.750  q 1, looked up")
        await c.pilot.press("alt+right")
        await c.sees("token 6/18")
        await c.pilot.click(c.app.screen.query(ReplyView).last().flow, offset=(0, 0))
        await c.sees("token 1/2")
        marks = [
            line.text[span.start : span.end]
            for view in c.app.screen.query(ReplyView)
            for line in view.flow.lines
            for span in line.content.spans
            if span.style == "reverse"
        ]
        assert marks == ["Other"]


async def test_the_token_under_the_cursor_is_scrolled_into_sight(chat):
    async with chat(Script("\n".join(f"line {i}" for i in range(60))), size=(80, 24)) as c:
        await c.ask("Hello")
        await c.pilot.press("alt+left")
        await c.sees("token 120/120")
        c.app.screen._widgets.token_bar.go(c.replies[0], 20)
        await c.pilot.press("alt+left")
        await c.sees("token 20/120")
        await c.sees("line 9")
        assert "line 59" not in c.screen_text


async def test_explanations_stay_in_their_column(chat):
    async with chat(size=(60, 150)) as c:
        await c.type("/help")
        await c.sees("/quit")
        lines = c.screen_text.splitlines()
        place = next(i for i, line in enumerate(lines) if "F9" in line)
        start = lines[place].index("continue a stopped")
        assert lines[place + 1][:start].isspace()
        assert lines[place + 1][start:].strip()
        place = next(i for i, line in enumerate(lines) if "Ctrl+J / Shift+Enter" in line)
        assert lines[place + 1].strip() == "a new line"


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


async def test_ctrl_d_quits_from_an_empty_composer_only(chat):
    async with chat() as c:
        c.composer.insert("ab")
        await c.pilot.press("home", "ctrl+d")
        await c.until(lambda: c.composer.text == "b")
        await c.pilot.press("ctrl+d", "ctrl+d")
        await c.until(lambda: not c.app.is_running)


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
        strips = c.app.screen._compositor.render_strips()
        assert not any(char in s.text for line in strips for s in line for char in "\x1b\x9b\x07")
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][-1].content == text


async def test_a_pasted_megabyte_is_a_mark_until_it_is_sent_and_then_folded(chat):
    text = "".join(f"line {i} [red]x[/]\n" for i in range(55_000))
    async with chat() as c:
        c.composer.post_message(events.Paste(text))
        await c.until(lambda: c.composer.text == "[pasted text 1, 55001 lines]")
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][0].content == text.strip("\n")
        await c.ready()
        await c.sees("line 3 [red]x[/]")
        await c.sees("… 54992 more lines (click or F7, Alt+O to unfold)")
        await c.pilot.press("up")
        assert c.composer.text == "[pasted text 1, 55001 lines]"


async def test_thinking_is_folded_with_its_tokens_and_unfolds_on_a_click(chat):
    text = "<think>\nfirst this then that\n</think>\n\nThe *answer*."
    async with chat(Script(text, hold_at=1), Script("then so</think>Yes.")) as c:
        await c.type("Hello")
        await c.until(lambda: c.engine.holding)
        await c.sees("▸ thinking, 4 tokens")
        c.engine.go.set()
        await c.ready()
        await c.sees("▸ thought, 6 tokens")
        await c.sees("The answer.")
        assert "first this" not in c.screen_text
        await c.settled()
        await c.pilot.click(".thought")
        await c.sees("first this then that")
        c.composer.focus()
        assert c.replies[0].text == text
        await c.ask("Again")
        await c.until(lambda: c.screen_text.count("thought, ") == 2)
        await c.sees("Yes.")
        await c.until(lambda: "then so" not in c.screen_text)


async def test_the_editor_writes_the_message(chat, monkeypatch):
    monkeypatch.setattr("tui.input.external_editor.command", lambda: ["ed"])
    monkeypatch.setattr("tui.input.external_editor.edited", lambda text, words: f"{text} and more")
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
        "tui.input.external_editor.command", lambda: [sys.executable, "-c", "raise SystemExit(3)"]
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


@pytest.mark.parametrize(
    ("start", "line", "end"), [("", "line {}\n\n", "done"), ("```\n", "line {}\n", "```\n")]
)
async def test_a_reply_of_ten_thousand_lines_keeps_them_all_and_the_interface_alive(
    chat, start, line, end
):
    lines = 10_000 if start else 5_000
    text = start + "".join(line.format(i) for i in range(lines)) + end
    async with chat(Script(text), size=(80, 24)) as c:
        await c.type("Hello")
        await c.until(lambda: c.replies and c.replies[-1].end, seconds=60)
        await c.ready()
        assert c.replies[0].text == text
        await c.sees(f"line {lines - 1}")
        markdown = c.app.screen.query_one(ReplyView).markdown
        await c.until(lambda: markdown.settled, seconds=60)
        shown = markdown.closed.text
        assert not markdown.tail.text
        assert [f"line {i}" in shown for i in (0, lines // 2, lines - 1)] == [True] * 3
        assert shown.count("line ") == lines
        await c.type("/temp 0")
        await c.sees("temperature 0")


async def test_right_to_left_wide_and_joined_characters_are_shown(chat):
    text = "שלום עולם, مرحبا, 漢字かな, 👩‍👩‍👧 é e\u0301, [x]"
    async with chat(Script(text), size=(60, 20)) as c:
        await c.ask(text)
        await c.until(lambda: c.screen_text.count("漢字かな") == 3)  # and the title
        await c.until(lambda: c.screen_text.count("שלום") == 3)
        await c.pilot.press("ctrl+t")
        await c.until(lambda: c.screen_text.count("漢字かな") == 3)  # and the title


async def test_another_answer_after_help_is_shown_once(chat):
    """The turn to the branch and the question may be shown in one look of the timer."""
    async with chat(Script("first answer"), Script("second answer")) as c:
        await c.ask("Hello")
        await c.type("/help")
        await c.sees("keys and commands")
        await c.leave()
        await c.pilot.press("f5")
        await c.until(lambda: c.replies[-1].text == "second answer" and c.replies[-1].end)
        await c.ready()
        await c.sees("second answer")
        assert c.screen_text.count("second answer") == 1
        assert "first answer" not in c.screen_text


async def test_a_message_that_no_context_holds_does_not_stay_in_the_chat(chat):
    long = ContextError("the message is too long: 547207 tokens; shorten it: at most 768")
    async with chat(Script("Hi."), Script(error=long), Script("Still here.")) as c:
        await c.ask("Hello")
        await c.type("a very long text")
        await c.sees("the message is too long")
        await c.sees("not part of the chat any more; Up brings it back")
        assert [turn.text for turn in c.session.chat.conversation.turns] == ["Hello", "Hi."]
        await c.ask("And now?")
        await c.sees("Still here.")
        assert [message.content for message in c.engine.asked[-1]] == ["Hello", "Hi.", "And now?"]
        await c.pilot.press("up", "up")
        await c.until(lambda: c.composer.text == "a very long text")


async def test_a_reply_that_cannot_go_on_is_what_it_was(chat):
    full = ContextError("the reply cannot go on: 9 tokens, and the context holds 9; raise --ctx")
    async with chat(Script(LONG, hold_at=2), Script(error=full)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        made = c.replies[-1].recipe
        await c.pilot.press("f9")
        await c.sees("take more with /set ctx N")
        await c.sees("stopped by you")
        assert c.replies[-1].end == "interrupt"
        assert c.replies[-1].recipe is made


async def test_what_is_known_of_a_reply_that_went_on_is_of_its_last_part(chat):
    more = Script(" and the rest")
    async with chat(Script(LONG, hold_at=2), more, Script(" and the rest")) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        begun = len(c.replies[-1].tokens)
        await c.pilot.press("f9")
        await c.sees(f"{begun + 3} tokens")
        await c.ready()
        await c.pilot.press("alt+left")
        await c.sees(f"token {begun + 3}/{begun + 3}  ' rest'")
        await c.until(lambda: [len(tokens) for tokens in c.engine.examined] == [3])
        for _ in range(3):
            await c.pilot.press("alt+left")
        await c.sees("p and q are no longer available")
        await c.pilot.press("f3")
        await c.sees("all 3 tokens since it was continued are the same")
        assert c.engine.asked[-1] == c.engine.asked[-2]
        drafted, plainly = c.app.screen.query("CompareScreen TextFlow")
        assert drafted.text == plainly.text == " and the rest"
        turn = c.replies[-1]
        question = c.session.chat.conversation.turns[0]
        again = ChatTurn("assistant", turn.text, end=turn.end, id=turn.id, parent=question.id)
        restore(again, details(turn))
        Conversation().load([question, again], again.id)
        assert again.recipe == turn.recipe


async def test_a_stopped_reply_goes_on_where_it_stopped(chat):
    async with chat(Script(LONG, hold_at=2), Script(" and the rest")) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        stopped = c.replies[-1].text
        assert c.replies[-1].end == "interrupt"
        await c.type("/continue")
        await c.until(lambda: c.replies[-1].text == stopped + " and the rest")
        await c.ready()
        assert len(c.replies) == 1
        assert c.engine.asked[-1][-1].role == "assistant"
        assert c.engine.asked[-1][-1].content == stopped
        await c.type("/continue")
        await c.until(lambda: "is complete" in c.stats)


async def test_f6_shows_all_figures_and_config_toml_remembers_it(chat):
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        assert "tok/round" not in c.stats
        config = paths.config_dir() / "config.toml"
        await c.pilot.press("f6")
        await c.until(lambda: "/round" in c.stats and "drafting on" in c.stats)
        await c.until(lambda: config_settings.read(config).get("figures") == "all")
        await c.pilot.press("f6")
        await c.until(lambda: "guesses right" in c.stats)
        await c.until(lambda: "figures" not in config_settings.read(config))


async def test_a_new_message_restyles_and_lays_out_no_other_one_twice(chat):
    async with chat(Script("Hello.")) as c:
        await c.ask("Hi")
        widgets = [*c.app.screen.query("ChatLog *")]
        view = c.app.screen.query_one(ReplyView)
        assert view in widgets
        # A selector such as :last-child would have Textual style each of them at every new one.
        assert not [w for w in widgets if w._has_order_style or w._has_odd_or_even]
        for widget in (
            view,
            view.markdown,
            view.markdown.closed,
            c.app.screen.query_one(chat_log.ChatLog),
        ):
            taller = Size(widget.size.width, widget.size.height + 1)
            widget._size_updated(taller, taller, taller)
            assert not widget._layout_required


async def test_help_begins_with_the_keys_of_every_day(chat):
    async with chat(size=(120, 35)) as c:
        await c.pilot.press("f1")
        await c.sees("keys and commands")
        shown = c.screen_text
        assert shown.index("Enter") < shown.index("F3") < shown.index("/help")
    listed = {keys for keys, _ in help_rows({})}
    assert {row.keys for row in keymap.rows({}, keymap.IN_THE_CHAT)} < listed


async def test_every_place_that_a_search_finds_is_marked_and_its_field_is_named(chat):
    async with chat(Script("one place, another place and no more"), size=(80, 24)) as c:
        await c.ask("Hello")
        await c.pilot.press("ctrl+f", *"place")
        await c.sees("Find place")
        await c.sees("2 of 2")
        log = c.app.screen.query_one(ChatLog)

        def marked():
            segments = [
                segment
                for lines in log.query(Lines)
                for y in range(lines.size.height)
                for segment in lines.render_line(y)
            ]
            return [s.text for s in segments if s.style is not None and s.style.underline]

        await c.until(lambda: marked() == ["place", "place"])
        await c.pilot.press("escape")
        await c.until(lambda: not marked())


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


async def test_the_speed_of_a_reply_is_on_the_screen_once(chat):
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        await c.sees(" tokens in ")
        await c.until(lambda: c.screen_text.count("tok/s") == 1)


async def test_the_light_terminal_theme_writes_black_on_white_on_a_dark_terminal_too(chat):
    async with chat(Script("Fine.")) as c:
        c.app.theme = "ansi-light"
        await c.ask("Hello")
        await c.sees("Fine.")
        strips = c.app.screen._compositor.render_strips()
        style = next(part.style for strip in strips for part in strip if "Fine." in part.text)
        assert (style.color.number, style.bgcolor.number) == (0, 15)
