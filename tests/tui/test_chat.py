"""The interface, driven by keys, over a fake engine."""

import asyncio
import dataclasses
import os
import threading
import webbrowser

import pytest
from fake_engine import INFO, LONG, FakeEngine, Script, conversation
from textual import events
from textual.content import Content
from textual.geometry import Size

from localspec.chats.values import Chat, started
from localspec.config import settings as config_settings
from localspec.core.errors import ThinkingSwitchError
from localspec.core.events import Loading, Message, Speculation
from localspec.core.files import paths
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar import reading
from tui.input import keymap
from tui.input.help_rows import help_rows
from tui.session.commands import SPECS, told_here
from tui.session.recorder import ChatRecorder
from tui.session.session_engine import Phase
from tui.widgets import chat_log
from tui.widgets.bars import FindBar
from tui.widgets.chat_log import ChatLog
from tui.widgets.lines import Lines
from tui.widgets.message import Note, QuestionView, ReplyView


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


async def test_the_details_say_when_they_come_while_the_model_is_loaded(chat):
    engine = FakeEngine([Script("Hi.")])
    engine.loaded.clear()
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: "loading story-target 40%" in c.stats)
        await c.pilot.press("f2")
        await c.sees("come with the first reply")
        engine.loaded.set()


async def test_what_the_first_start_does_before_loading_is_named_without_a_share_of_it(chat):
    engine = FakeEngine([Script("Hi.")])
    engine.loading = Loading("compiling kernels, once", None)
    engine.loaded.clear()
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: "compiling kernels, once" in c.stats)
        assert "loading" not in c.stats
        assert "%" not in c.stats
        engine.loaded.set()


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

    def checked(text: str, *, pipes: bool) -> GrammarSpec:
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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix")
async def test_a_schema_in_a_pipe_stops_no_commands(chat, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    async with chat() as c:
        await c.type(f"/schema {tmp_path}/pipe")
        await c.until(lambda: "no regular file" in c.flowing_text)
        assert c.session.settings.grammar is None


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
        recipe = c.session.chat.conversation.recipe_of(c.replies[-1])
        assert recipe.request(draft=False).thinking is False


async def test_thinking_is_not_switched_where_the_model_has_no_switch_for_it(chat):
    engine = FakeEngine([Script("One.")])
    engine.info = dataclasses.replace(INFO, switches_thinking=False)
    async with chat(engine=engine) as c:
        await c.type("/think off")
        await c.until(lambda: "demo has no switch for thinking" in c.stats)
        await c.ask("Hello")
        assert engine.requests[-1].thinking is None
        await c.type("/think auto")
        await c.sees("thinking auto")


async def test_where_thinking_cannot_be_switched_after_all_the_error_says_how_to_go_on(chat):
    refused = ThinkingSwitchError("this chat template cannot do that")
    async with chat(Script(error=refused)) as c:
        await c.type("/think off")
        await c.type("Hello")
        await c.sees("this chat template cannot do that; /think auto leaves it to the model")


@pytest.mark.slow
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
        await c.until(lambda: c.screen_text == before)


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


async def test_a_link_without_a_browser_says_so(chat, monkeypatch):
    def none(using=None):
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    async with chat(Script("See [the paper](https://example.org/a).")) as c:
        await c.ask("Hello")
        await c.ready()
        await c.pilot.press("f7", "alt+o")
        await c.sees("no browser was found here to open https://example.org/a")


async def test_the_beginning_is_shown_where_it_is_asked_for_while_older_messages_are_laid_out(
    chat, monkeypatch
):
    monkeypatch.setattr(chat_log, "KEEP", 4)
    monkeypatch.setattr(chat_log, "SLACK", 4)
    async with chat(resume=Chat(started(), conversation(14)), size=(80, 15)) as c:
        await c.sees("message number 13")
        log = c.app.screen.query_one(chat_log.ChatLog)
        await log.show_turn(c.session.chat.conversation.turns[5])  # older ones are in reach
        await c.pilot.pause()
        await log.load_older()
        await log.show_oldest()
        for _ in range(4):
            await c.pilot.pause()
        assert (log.scroll_y, log.max_scroll_y > 10) == (0, True)


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


async def test_after_a_jump_it_is_still_said_below_that_the_chat_is_not_saved(chat, monkeypatch):
    monkeypatch.setattr(chat_log, "KEEP", 4)
    monkeypatch.setattr(chat_log, "SLACK", 4)
    monkeypatch.setattr(ChatRecorder, "why_unsaved", "it was erased elsewhere")
    async with chat(resume=Chat(started(), conversation(8)), size=(80, 15)) as c:
        await c.sees("message number 7")

        async def search():
            await c.app.screen.transcript.show_turn(c.session.chat.conversation.turns[-1])
            await c.sees("erased")  # it scrolls there after the next layout, wherever one is then

        for back in (
            lambda: c.pilot.press("ctrl+end"),
            search,
            lambda: c.pilot.press("pagedown"),
        ):
            await c.pilot.press("ctrl+home")
            await c.sees("message number 0")
            assert not c.app.screen.query(Note)
            await back()
            await c.until(lambda: any("erased" in note.says for note in c.app.screen.query(Note)))
        await c.pilot.press("ctrl+home")
        await c.sees("message number 0")
        for number in range(8):  # of which the first jumps, and others unmount the oldest messages
            await c.ask(f"question {number}")
            notes = [note for note in c.app.screen.query(Note) if "erased" in note.says]
            assert len(notes) == 1


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


async def test_text_keeps_its_lines_when_the_scrollbar_comes(chat):
    async with chat(size=(80, 50)) as c:
        log = c.app.screen.query_one("ChatLog")
        await c.ask("Hello")
        await c.ready()
        width = log.views[0].size.width
        assert not log.show_vertical_scrollbar
        for _ in range(50):
            await log.note(f"a line {len(log.children)}")
        await c.until(lambda: log.show_vertical_scrollbar)
        assert log.views[0].size.width == width


async def test_quit_ends_the_engine(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("ctrl+q")
        await c.until(lambda: not c.app.is_running)
    assert c.engine.closed
    assert c.app.return_code == 0


async def test_the_end_between_a_question_and_its_reply_is_no_defect(chat, monkeypatch):
    async with chat(Script("One.")) as c:
        monkeypatch.setattr(QuestionView, "on_mount", lambda _: c.app.exit())
        await c.pilot.press(*"hi", "enter")
        await c.until(lambda: not c.app.is_running)
    assert c.app.defect is None


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


@pytest.mark.parametrize(
    ("times", "selected"), [(2, "well-known"), (3, "One well-known three, four.")]
)
async def test_two_clicks_select_a_word_and_three_a_paragraph(chat, times, selected):
    async with chat(Script("One well-known three, four.\n\nAnother one.\n\n")) as c:
        await c.ask("Hello")
        await c.settled()
        closed = c.app.screen.query_one(ReplyView).markdown.closed
        await c.pilot.click(closed, offset=(6, 0), times=times)
        await c.until(lambda: c.app.screen.get_selected_text() == selected)


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
            "Stop the reply and keep its text",
            "Copy code",
        } <= names
        assert {name.capitalize() for name in SPECS} <= names
        await c.pilot.press("ctrl+p")
        await c.pilot.press(*"export")
        found = c.app.screen.query_one("CommandList")
        await c.until(
            lambda: found.option_count and "Export" in str(found.get_option_at_index(0).prompt)
        )
        await c.pilot.press("enter")
        await c.until(lambda: c.composer.text == "/export ")


async def test_the_palette_and_the_help_list_the_same_commands(chat):
    listed = {(first, does.casefold()) for first, does in help_rows({}) if first}
    async with chat() as c:
        offered = list(c.app.get_system_commands(c.app.screen))
        found = set()
        for command in offered:
            shown = Content.from_markup(command.help).plain  # as the palette does
            usage, typed, does = shown.partition(": ")
            does = (does if typed else command.title).casefold()
            found.add((usage if typed else shown, does))
        found = {one for one in found if one[0] != keymap.BY_ID["app.suspend"].tooltip}
        assert found <= listed
        assert {row for row in listed if row[0].startswith("/")} <= found
        pressed = {does for _, does in found}
        for binding in (*keymap.CHAT, *keymap.APP):
            if keymap.commands(binding)[1:]:
                assert binding.tooltip.casefold() in pressed


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


@pytest.mark.slow
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


@pytest.mark.parametrize("leave", ["escape", "ctrl+f"])
@pytest.mark.parametrize("moves", [[], ["up", "up"]])
async def test_a_search_that_is_left_at_once_marks_nothing(chat, moves, leave):
    async with chat(Script("One two three two.")) as c:
        await c.ask("two and two")
        await c.pilot.press("ctrl+f")
        bar = c.app.screen.query_one(FindBar)
        await c.until(lambda: bar.input.has_focus)
        for key in ("t", "w", "o", *moves, leave):
            c.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await c.until(lambda: not bar.display)
        await c.until(lambda: not any(w.group == "find" for w in c.app.workers if w.is_running))
        assert c.app.screen.get_selected_text() is None


@pytest.mark.parametrize("turns", [1, 2, 4])
async def test_a_search_that_is_left_while_it_goes_far_leaves_messages_on_the_screen(chat, turns):
    async with chat(resume=Chat(started(), conversation(200)), size=(80, 15)) as c:
        await c.sees("message number 199")
        await c.pilot.press("ctrl+f", *"number 7")
        await c.sees("1 of")
        c.app.post_message(events.Key("down", None))  # from the last place to the first, far up
        for _ in range(turns):
            await asyncio.sleep(0)
        c.app.post_message(events.Key("escape", None))
        await c.until(lambda: not c.app.screen.query_one(FindBar).display)
        await c.sees("message number 7")


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


async def test_the_speed_of_a_reply_is_on_the_screen_once(chat):
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        await c.sees(" tokens in ")
        await c.until(lambda: c.screen_text.count("tok/s") == 1)
