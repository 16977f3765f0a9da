"""Typed text is neither lost nor sent without its files, and each command says its state."""

from __future__ import annotations

import json
import os

import pytest
from attaching import attach
from fake_engine import FakeEngine, Script
from picture_files import png
from test_chat import LONG
from textual import events
from textual.app import SystemCommand
from textual.screen import ModalScreen

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatMessage, new_message_id, started
from localspec.core.events import Speculation
from tui.app import ChatApp
from tui.input import setting_fields
from tui.input.attachments import NoFileError
from tui.input.completion import Known, completions
from tui.screens.settings import SettingsScreen
from tui.session.recorder import ChatRecorder
from tui.session.session_engine import Phase


async def test_tab_completes_what_was_typed_last_however_fast(chat):
    async with chat() as c:
        await c.pilot.press("/")
        await c.sees("/again")
        c.composer.insert("dra")  # Tab comes before the change of the text is reported
        c.composer.action_complete()
        assert c.composer.text == "/draft "


async def test_what_is_typed_before_the_first_screen_is_there_is_sent(chat, monkeypatch):
    async def typed_at_once(self):
        for key in ("h", "ctrl+j", "i", "enter"):
            self.post_message(events.Key(key, key if len(key) == 1 else None))

    monkeypatch.setattr(ChatApp, "on_load", typed_at_once)
    async with chat(Script("Hello.")) as c:
        await c.until(lambda: c.replies and c.replies[-1].end)
        assert c.engine.asked[0][-1].content == "h\ni"


async def test_tab_leaves_the_keyboard_with_the_composer(chat):
    async with chat(Script("Fine.")) as c:
        await c.pilot.press(*"hello", "tab", "backspace", "enter")
        await c.until(lambda: c.replies and c.replies[-1].end)
        assert c.engine.asked[0][-1].content == "hell"


async def test_keys_that_change_text_find_the_composer_from_elsewhere(chat):
    async with chat(Script("Fine.")) as c:
        await c.pilot.press(*"hello")
        c.app.screen.query_one("ChatLog").focus()
        await c.until(lambda: not c.composer.has_focus)
        await c.pilot.press("backspace", "enter")
        await c.until(lambda: c.replies and c.replies[-1].end)
        assert c.engine.asked[0][-1].content == "hell"


def test_arguments_of_commands_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.gguf").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / "models").mkdir()
    known = Known({"ab12": "On owls", "cd34": "On foxes"}, {"1": "here", "2": "there"})
    assert [c.text for c in completions("/resume ", known)] == ["ab12", "cd34"]
    assert [c.text for c in completions("/resume cd", known)] == ["cd34"]
    assert [c.text for c in completions("/resume owl", known)] == ["ab12"]
    assert [c.text for c in completions("/open ", known)] == ["1", "2"]
    assert "demo" in [c.text for c in completions("/model ")]
    assert [c.text for c in completions("/model min")] == ["mine.gguf"]
    assert f"models{os.sep}" in [c.text for c in completions("/draft mo")]
    assert [c.text for c in completions("/draft o")] == ["on", "off"]
    assert "mine.gguf" not in [c.text for c in completions("/pull min")]


async def test_a_saved_chat_is_completed_by_its_title(chat, tmp_path):
    path = tmp_path / "chats.db"
    async with chat(Script("Fine."), recorder=ChatRecorder(Saver(path)), size=(100, 30)) as c:
        await c.ask("All about owls")
        identity = c.session.chat.recorder.info.id[:8]
        await c.pilot.press(*"/resume ")
        await c.sees(identity)
        await c.pilot.press(*"owl", "tab")
        await c.until(lambda: c.composer.text == f"/resume {identity} ")


async def test_ctrl_c_empties_the_composer_first_and_up_brings_the_text_back(chat):
    async with chat() as c:
        await c.pilot.press(*"precious")
        await c.pilot.press("ctrl+c")
        await c.until(lambda: not c.composer.text)
        assert "Up brings it back" in c.stats
        await c.pilot.press("up")
        assert c.composer.text == "precious"
        await c.pilot.press("ctrl+c", "ctrl+c")  # one to empty, one to be asked again
        assert c.app.is_running
        await c.until(lambda: "press Ctrl+C again to quit" in c.stats)


async def test_ctrl_c_while_a_reply_comes_stops_it_and_keeps_what_is_typed(chat):
    async with chat(Script(LONG, hold_at=3)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press(*"precious", "ctrl+c")
        await c.until(lambda: c.replies[-1].end == "interrupt")
        assert c.composer.text == "precious"


@pytest.mark.parametrize("name", ["nofile.txt", "some/where", "/dev/zero", "sub/"])
def test_what_looks_like_a_path_and_is_no_file_is_not_sent_in_silence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    with pytest.raises(NoFileError):
        attach(f"see @{name}")
    assert attach(f"see @{name}", as_words=True) == f"see @{name}"


async def test_a_space_before_the_slash_sends_it_to_the_model(chat):
    async with chat(Script("Fine.")) as c:
        await c.ask(" /help me")
        assert c.engine.asked[0][-1].content == " /help me"


async def test_a_missing_file_is_told_and_enter_again_sends_the_words(chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with chat(Script("Fine.")) as c:
        await c.pilot.press(*"see @no.txt", "enter")
        await c.until(lambda: "there is no file no.txt; Enter again sends it" in c.stats)
        assert not c.engine.asked
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        assert c.engine.asked[0][-1].content == "see @no.txt"


async def test_draft_without_a_word_shows_the_state_and_changes_nothing(chat):
    async with chat(Script(LONG), Script(LONG), size=(100, 30)) as c:
        await c.type("/draft")
        await c.sees("drafting on, draft model story-draft-q8.gguf; /draft off switches it off")
        assert c.session.settings.draft
        await c.type("/draft off")
        await c.until(lambda: "not drafting: switched off by /draft off" in c.stats)
        await c.type("/draft")
        await c.sees("drafting is switched off; /draft on switches it on")
        assert not c.session.settings.draft


async def test_after_draft_off_the_line_does_not_go_on_saying_parked(chat):
    parked = Speculation("parked", "plain decoding is faster: 0% of drafted tokens accepted")
    async with chat(Script(LONG, speculation=parked)) as c:
        await c.ask("Hello")
        assert "not drafting: plain" in c.stats
        await c.type("/draft off")
        await c.until(
            lambda: "plain" not in c.stats and "not drafting: switched off by /draft off" in c.stats
        )


async def test_f9_answers_a_question_whose_reply_was_stopped_before_its_first_token(chat):
    async with chat(Script(LONG, hold_at=0), Script("Fine.")) as c:
        await c.type("Hello")
        await c.until(lambda: c.engine.holding)
        await c.pilot.press("escape")
        await c.until(lambda: c.session.engine.phase is Phase.READY)
        await c.ready()
        assert c.replies[-1].text == ""
        await c.pilot.press("f9")
        await c.until(lambda: c.replies[-1].end == "stop")
        assert c.replies[-1].text == "Fine."
        assert c.engine.asked[0] == c.engine.asked[1]
        assert c.session.chat.conversation.place == (1, 1)


async def test_f9_answers_a_question_that_was_not_answered(chat, tmp_path):
    question = ChatMessage(new_message_id(), None, "user", "Hello", 1.0)
    cut = ChatMessage(new_message_id(question.id), question.id, "assistant", "", 2.0)
    for messages in ((question, cut), (question,)):  # the interface was killed
        async with chat(Script("Fine."), resume=Chat(started(), messages)) as c:
            await c.pilot.press("f9")
            await c.until(lambda: c.replies and c.replies[-1].end == "stop")
            assert c.engine.asked[0][-1].content == "Hello"


async def test_a_chat_with_a_wild_time_is_listed_and_not_imported(chat, tmp_path):
    path = tmp_path / "chats.db"
    wild = started()
    with ChatStore(path) as store:
        store.put([type(wild)(wild.id, "wild", True, None, None, None, 9e18, 9e18)], [])
    said = {"id": 1, "parent": None, "role": "user", "text": "a", "created": 9e18}
    one = {"title": "far", "created": 9e18, "updated": 9e18, "messages": [said]}
    file = tmp_path / "far.json"
    whole = {"format": "localspec-chats", "version": 1, "chats": [one]}
    file.write_text(json.dumps(whole), encoding="utf-8")
    async with chat(recorder=ChatRecorder(Saver(path)), size=(100, 30)) as c:
        await c.type("/chats")
        await c.sees("unknown date")
        await c.leave()
        await c.type(f"/import {file}")
        await c.sees("which is not a time")
        with ChatStore(path) as store:
            assert len(store.listed()) == 1


async def test_a_reply_of_another_model_says_so_and_exports_name_both(chat, tmp_path):
    path = tmp_path / "chats.db"
    recorder = ChatRecorder(Saver(path), "small")
    engine = FakeEngine([Script("One."), Script("Two."), Script("Three.")])
    async with chat(engine=engine, recorder=recorder, size=(100, 40)) as c:
        await c.ask("First")
        c.session.chat.recorder.use_model("large", None)
        await c.ask("Second")
        await c.sees("by large")
        await c.ask("Third")
        assert c.screen_text.count("by large") == 1
        await c.type(f"/export {tmp_path / 'both.md'}")
        await c.sees("written to")
        text = (tmp_path / "both.md").read_text(encoding="utf-8")
        assert "## Model (small)\n\nOne." in text
        assert "## Model (large)\n\nTwo." in text
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    async with chat(recorder=ChatRecorder(Saver(path), "large"), resume=saved, size=(100, 40)) as c:
        await c.sees("by large")


async def test_the_welcome_of_the_demo_says_that_it_is_a_toy_and_where_models_are(chat):
    async with chat(size=(80, 24)) as c:
        await c.sees("toy of 4 MB")
        await c.sees("F4 lists real models")
        assert "f4 Models" in c.screen_text.splitlines()[-1]


async def test_a_narrow_footer_leaves_out_whole_keys(chat):
    async with chat(size=(40, 12)) as c:
        await c.sees("f1 Help f3 Compare f4 Models ^q Quit")


async def test_a_message_sent_while_another_is_being_sent_is_sent_too(chat):
    async with chat(Script("A."), Script("B."), Script("C.")) as c:
        for text in ("one", "two", "three"):
            c.composer.insert(text)
            c.composer.action_send()
        c.composer.insert("typed on")
        await c.until(lambda: len(c.engine.asked) == 3 and c.replies[-1].end)
        assert [asked[-1].content for asked in c.engine.asked] == ["one", "two", "three"]
        assert c.composer.text == "typed on"


async def test_what_follows_a_refused_message_stays_in_the_composer(chat):
    async with chat() as c:
        c.composer.insert("/frobnicate")
        c.composer.action_send()
        c.composer.insert(" two")
        c.composer.action_send()
        await c.until(lambda: "there is no /frobnicate" in c.stats)
        assert c.composer.text == "/frobnicate two"


def burst(c, *keys):
    """Keys as a terminal sends them where nobody waits for what the first one opens."""
    for key in keys:
        c.app.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_keys_typed_ahead_into_the_settings_are_neither_sent_nor_lost(chat):
    async with chat() as c:
        burst(c, "ctrl+s", *"0.25", "enter")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.25)
        assert c.composer.text == ""
        assert not c.session.chat.conversation.turns


async def test_keys_behind_a_command_that_opens_the_settings_are_for_them(chat):
    async with chat() as c:
        burst(c, *"/settings", "enter", *"0.25", "enter")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.25)
        assert c.composer.text == ""
        assert not c.session.chat.conversation.turns


@pytest.mark.parametrize(
    ("opens", "screen"), [("ctrl+l", "ChatsScreen"), ("f4", "ModelsScreen"), ("f1", "ListScreen")]
)
async def test_words_typed_ahead_of_a_list_search_it(chat, tmp_path, opens, screen):
    async with chat(recorder=ChatRecorder(Saver(tmp_path / "chats.db"))) as c:
        burst(c, opens, *"owls")
        await c.until(lambda: type(c.app.screen).__name__ == screen and c.app.focused)
        await c.until(lambda: c.app.focused.value == "owls")
        assert c.composer.text == ""


@pytest.mark.parametrize(
    ("command", "screen"), [("/chats", "ChatsScreen"), ("/models", "ModelsScreen")]
)
async def test_words_behind_a_command_that_opens_a_list_search_it(chat, tmp_path, command, screen):
    async with chat(recorder=ChatRecorder(Saver(tmp_path / "chats.db"))) as c:
        burst(c, *command, "enter", *"owls")
        await c.until(lambda: type(c.app.screen).__name__ == screen and c.app.focused)
        await c.until(lambda: c.app.focused.value == "owls")
        assert c.composer.text == ""


async def test_words_typed_ahead_of_the_palette_search_it(chat):
    async with chat() as c:
        burst(c, *"hm", "ctrl+p", *"quit")
        await c.until(lambda: c.app.focused and c.app.focused is not c.composer)
        await c.until(lambda: c.app.focused.value == "quit")
        await c.until(lambda: c.composer.text == "hm")


@pytest.mark.parametrize(
    ("keys", "called"), [(["enter"] * 3, 1), (["escape", "escape", "enter"], 0)]
)
async def test_keys_that_follow_the_end_of_the_palette_do_nothing(chat, monkeypatch, keys, called):
    calls = []
    owls = SystemCommand("Owls", "", lambda: calls.append("called"))
    async with chat() as c:
        monkeypatch.setattr(c.app, "get_system_commands", lambda _: [owls])
        await c.pilot.press("ctrl+p", *"owls")
        await c.until(lambda: c.app.screen.query_one("CommandList").option_count)
        burst(c, *keys)
        await c.until(lambda: c.app.screen is c.app.screen_stack[0] and len(calls) >= called)
        await c.type("Hello")
        await c.sees("Hello")
        assert len(calls) == called


async def test_what_is_pasted_ahead_of_a_list_searches_it(chat, tmp_path):
    async with chat(recorder=ChatRecorder(Saver(tmp_path / "chats.db"))) as c:
        burst(c, "a", "ctrl+l", "b")
        c.app.post_message(events.Paste("owls"))
        await c.until(lambda: type(c.app.screen).__name__ == "ChatsScreen" and c.app.focused)
        await c.until(lambda: c.app.focused.value == "bowls")
        assert c.composer.text == "a"


async def test_keys_wait_until_the_panel_that_they_are_for_is_there(chat):
    async with chat() as c:
        panel = SettingsScreen(c.session.settings, None)
        c.app.push_screen(panel)
        burst(c, "down", "9")
        await c.until(lambda: c.app.focused and c.app.focused.value == "9")
        assert c.app.focused.name == "top_k"


async def test_keys_for_a_panel_that_closes_before_it_is_there_are_the_chats(chat):
    async with chat() as c:
        c.app.push_screen(ModalScreen())
        burst(c, "a")
        c.app.pop_screen()
        burst(c, "b")
        await c.until(lambda: c.composer.text.endswith("b"))


@pytest.mark.slow
@pytest.mark.parametrize("place", range(1, 5))
async def test_what_is_typed_in_the_settings_lands_in_the_setting_that_was_chosen(chat, place):
    async with chat() as c:
        before = list(setting_fields.values(c.session.settings, c.session.engine.options))
        burst(c, "ctrl+s", *["down"] * place, "9")
        await c.until(lambda: isinstance(c.app.screen, SettingsScreen) and c.app.focused)
        await c.until(lambda: c.app.focused.value.endswith("9"))
        assert c.app.focused.name == before[place]
        assert c.composer.text == ""


async def test_what_is_typed_is_seen_below_all_that_a_low_terminal_can_show(chat):
    async with chat(Script(LONG), size=(40, 12)) as c:
        await c.ask("Hello")
        await c.pilot.press("ctrl+t", "alt+left")
        await c.sees("else  ")
        await c.pilot.press("/", "s")
        await c.sees("of 5, ↑ ↓")
        assert "│ /s " in c.screen_text
        await c.pilot.press("up", "tab")
        await c.until(lambda: c.composer.text == "/schema ")


async def test_suggestions_take_the_room_of_a_terminal_that_grows(chat):
    async with chat(Script(LONG), size=(40, 12)) as c:
        await c.ask("Hello")
        await c.pilot.press("ctrl+t", "alt+left", "f2", "/")
        await c.sees("1 to 1 of")
        await c.pilot.resize_terminal(40, 24)
        await c.sees("1 to 6 of")


def is_whole(c):
    """Whether composer and figures are in their places below the list, and nothing is scrolled."""
    screen, height = c.app.screen, c.app.size.height
    stats = screen.query_one("StatsBar").region
    rows = screen.query_one("SuggestBar").region.height
    fits = screen.max_scroll_y == 0 and not screen.show_vertical_scrollbar
    return fits and rows and c.composer.region.bottom == stats.y and stats.bottom < height


@pytest.mark.parametrize("height", [12, 13])
async def test_suggestions_leave_a_low_terminal_all_that_is_below_them(chat, height):
    async with chat(size=(40, height)) as c:
        await c.pilot.press("/")
        await c.sees(f"1 to {height - 7} of" if height < 13 else "1 to 6 of")
        await c.until(lambda: is_whole(c))


async def test_suggestions_leave_room_in_a_terminal_that_is_made_lower(chat):
    async with chat(size=(40, 18)) as c:
        await c.pilot.press("/")
        await c.sees("1 to 6 of")
        for height in (12, 10, 9, 18):
            await c.pilot.resize_terminal(40, height)
            await c.until(lambda: is_whole(c))
        await c.sees("1 to 6 of")


async def test_a_command_of_the_palette_leaves_what_was_typed_to_up(chat):
    async with chat() as c:
        c.composer.insert("a long draft")
        c.app.screen.actions.runner.offer("/export")
        assert c.composer.text == "/export "
        c.composer.text = ""
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "a long draft")


async def test_a_picture_is_named_in_front_of_what_was_typed_meanwhile(chat, tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    async with chat() as c:
        c.composer.insert("What is on it?")
        c.app.screen.actions._add_image(str(tmp_path / "a.png"))
        assert c.composer.text == f"@{tmp_path}/a.png What is on it?"
