"""Several chats are open at once; what happens in one is never seen in another."""

from __future__ import annotations

import asyncio
import os
import weakref
from dataclasses import replace

import pytest
from fake_engine import INFO, FakeEngine, Script
from test_chat import LONG
from textual import events

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.core.errors import ChatsError, DecodeError
from localspec.core.options import Options
from localspec.core.processes import children, place, starts
from tui.session.archive import ChatArchive
from tui.session.conversation import Conversation
from tui.session.open_chats import Presence
from tui.session.recorder import ChatRecorder
from tui.session.session_engine import Phase
from tui.terminal import resources


def quick_recorder(path):
    return ChatRecorder(Saver(path, interval=0.02), "demo")


async def test_what_was_set_aside_for_an_edit_comes_back_where_the_chat_is_closed(chat):
    async with chat(Script("One.")) as c:
        await c.ask("first")
        c.composer.insert("half a question")
        await c.pilot.press("f8")
        await c.until(lambda: c.session.chat.editing is not None)
        c.app.screen.actions.runner.offer("/close")
        await c.until(lambda: not c.session.chat.conversation.turns)
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "half a question")
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "first")


async def test_a_reply_goes_on_in_its_chat_while_another_is_looked_at(chat):
    async with chat(Script(LONG, hold_at=2), Script("Second.")) as c:
        await c.ask_and_hold("first question")
        await c.pilot.press("ctrl+n")
        await c.sees("[2/2]")
        await c.sees("replying in another chat")
        await c.type("second question")
        await c.sees("sent after the reply in first question")
        assert "One two" not in c.screen_text
        c.engine.go.set()
        await c.sees("Second.")
        await c.ready()
        assert "One two" not in c.screen_text
        await c.pilot.press("ctrl+pageup")
        await c.sees("The end.")
        assert "Second." not in c.screen_text
        assert c.session.chat.conversation.turns[-1].text == LONG
        await c.pilot.press("f12")
        await c.sees("Second.")


def several(engine, count=4):
    """The engine answers that many requests at once."""
    engine.info = replace(INFO, parallel=count)
    return engine


async def test_a_comparison_says_which_reply_it_waits_for(chat):
    engine = several(FakeEngine([Script(LONG, hold_at=2), Script("Second.")]))
    async with chat(engine=engine) as c:
        await c.ask_and_hold("first question")
        await c.pilot.press("f3")
        await c.sees("wait for the reply to end, or stop it with Esc")
        await c.pilot.press("ctrl+n")
        await c.type("second question")
        await c.sees("Second.")
        await c.pilot.press("f3")
        await c.sees("wait for the reply in first question to end, or stop it there")
        c.engine.go.set()


async def test_several_chats_are_answered_at_the_same_time(chat):
    engine = several(FakeEngine([Script(LONG, hold_at=2), Script("Second.")]))
    async with chat(engine=engine) as c:
        await c.ask_and_hold("first question")
        await c.pilot.press("ctrl+n")
        await c.type("second question")
        await c.sees("Second.")  # while the first one is still being made
        assert c.engine.holding
        await c.sees("replying in another chat")
        c.engine.go.set()
        await c.until(lambda: c.session.idle)
        await c.pilot.press("ctrl+pageup")
        await c.sees("The end.")


async def test_esc_ends_the_reply_of_one_chat_and_no_other(chat):
    engine = several(FakeEngine([Script(LONG, hold_at=2), Script(LONG, hold_at=3)]))
    async with chat(engine=engine) as c:
        await c.ask_and_hold("first")
        await c.pilot.press("ctrl+n")
        await c.type("second")
        await c.until(lambda: len(c.session.replies.running) == 2)
        await c.sees("One two three")
        await c.pilot.press("escape")
        await c.sees("stopped by you")
        await c.pilot.press("ctrl+pageup")
        await c.sees("The end.")  # `go` lets both go on; this one was not interrupted
        ends = [x.conversation.turns[-1].end for x in c.session.chats.all]
        assert ends == ["stop", "interrupt"]


async def test_variants_are_made_at_once_on_branches_of_their_own(chat):
    scripts = [Script("One."), Script("A."), Script("B."), Script("C.")]
    async with chat(engine=several(FakeEngine(scripts, pace=0.01))) as c:
        await c.ask("Which?")
        await c.type("/variants 3")
        await c.sees("branch 2 of 4")
        await c.sees("3 answers are being made, each on a branch of its own: Alt+Up and Alt+Down")
        await c.until(lambda: c.session.idle)
        turns = c.session.chat.conversation
        assert [t.text for t in turns.turns] == ["Which?", "A."]  # the first stays in sight
        assert turns.place == (2, 4)
        await c.pilot.press("alt+down")
        await c.sees("B.")
        await c.pilot.press("alt+down")
        await c.sees("C.")
        assert len(set(c.engine.asked[1:])) == 1


async def test_a_fixed_seed_is_another_one_for_each_variant(chat):
    scripts = [Script("One."), Script("A."), Script("B.")]
    async with chat(engine=several(FakeEngine(scripts))) as c:
        c.session.settings.seed = 7
        await c.ask("Which?")
        await c.type("/variants 2")
        await c.until(lambda: len(c.engine.seeds) == 3 and c.session.idle)
        assert c.engine.seeds == [7, 7, 8]


async def test_variants_of_greedy_decoding_are_refused(chat):
    async with chat(Script("One.")) as c:
        await c.type("/temp 0")
        await c.ask("Which?")
        await c.type("/variants")
        await c.until(lambda: "all variants are the same" in c.stats)
        assert len(c.engine.asked) == 1


async def test_esc_ends_all_variants(chat):
    scripts = [Script("One."), *(Script(LONG, hold_at=2) for _ in range(5))]
    async with chat(engine=several(FakeEngine(scripts), 2)) as c:
        await c.ask("Which?")
        await c.type("/variants 5")
        await c.until(lambda: len(c.session.replies.running) == 2 and c.engine.holding)
        await c.pilot.press("escape")
        await c.until(lambda: c.session.idle)
        assert c.session.chat.conversation.place[1] == 3  # the other three were never begun


async def test_one_looks_on_at_a_reply_that_is_still_being_made(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        await c.ask_and_hold("first")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: "One two" not in c.screen_text)
        await c.pilot.press("ctrl+pagedown")
        await c.sees("One two")
        c.engine.go.set()
        await c.sees("The end.")
        await c.ready()
        assert c.screen_text.count("The end.") == 1


async def test_esc_stops_only_the_reply_that_one_sees(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        await c.ask_and_hold("first")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: "One two" not in c.screen_text)
        assert not c.session.stop()
        await c.pilot.press("ctrl+pageup")
        await c.sees("One two")
        await c.pilot.press("escape")
        await c.sees("stopped by you")


async def test_a_failure_elsewhere_is_told_when_one_comes_back(chat):
    broken = Script(LONG, error=DecodeError("llama.cpp refused"))
    async with chat(Script("One.", hold_at=0), broken) as c:
        await c.type("first")
        await c.until(lambda: c.engine.holding)
        await c.type("and more")
        await c.pilot.press("ctrl+n")
        c.engine.go.set()
        await c.until(lambda: not any(x.waits for x in c.session.chats.all) and c.session.idle)
        assert "refused" not in c.screen_text
        await c.pilot.press("ctrl+pageup")
        await c.sees("llama.cpp refused")
        await c.pilot.press("ctrl+pageup", "ctrl+pageup")
        await c.until(lambda: "llama.cpp refused" not in c.screen_text)  # it is told once


async def test_what_is_being_written_stays_with_its_chat(chat):
    async with chat(Script("One.")) as c:
        await c.ask("first")
        c.composer.insert("half a thought")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: not c.composer.text)
        c.composer.insert("another")
        await c.pilot.press("ctrl+pageup")
        await c.until(lambda: c.composer.text == "half a thought")
        await c.pilot.press("ctrl+pagedown")
        await c.until(lambda: c.composer.text == "another")


async def test_an_edit_that_was_begun_stays_one(chat):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("first")
        await c.pilot.press("f8", "ctrl+n", "ctrl+pageup")
        await c.until(lambda: c.composer.text == "first")
        await c.sees("esc Leave")
        await c.pilot.press("!", "enter")
        await c.sees("Two.")
        assert [t.text for t in c.session.chat.conversation.turns] == ["first!", "Two."]


async def test_open_chats_are_listed_looked_at_and_closed(chat):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.pilot.press("ctrl+pagedown")
        await c.until(lambda: "only this chat is open" in c.stats)
        await c.ask("about foxes")
        await c.pilot.press("ctrl+n")
        await c.ask("about bears")
        await c.type("/open")
        await c.sees("● 2  about bears")
        await c.leave()
        await c.type("/open")
        await c.sees("● 2  about bears")
        await c.pilot.press("up", "enter")
        await c.sees("One.")
        await c.type("/open")
        await c.sees("● 1  about foxes")
        await c.pilot.press("b", "e", "a", "r", "enter")
        await c.sees("Two.")
        await c.type("/open 7")
        await c.until(lambda: "from 1 to 2" in c.stats)
        await c.type("/open 1")
        await c.sees("One.")
        await c.type("/close")
        await c.sees("Two.")
        assert len(c.session.chats.all) == 1
        await c.type("/close")
        await c.until(lambda: not c.session.chat.conversation.turns)
        await c.until(lambda: "Two." not in c.screen_text)


async def test_keys_typed_ahead_of_enter_in_a_list_have_their_effect_there(chat):
    """They went to the composer of the chat below, and Enter took the row that was there before."""
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("about foxes")
        await c.pilot.press("ctrl+n")
        await c.ask("about bears")
        for keys in (("up", "enter"), ("b", "e", "a", "r", "enter")):
            await c.type("/open")
            await c.sees("Open chats")
            for key in keys:  # as a terminal sends them, without waiting
                c.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await c.sees("One." if keys[0] == "up" else "Two.")
            assert c.composer.text == ""


async def test_a_new_chat_in_an_untouched_one_opens_nothing(chat):
    async with chat() as c:
        await c.pilot.press("ctrl+n", "ctrl+n")
        assert len(c.session.chats.all) == 1


async def test_closing_ends_the_reply_and_drops_what_waits(chat):
    async with chat(Script(LONG, hold_at=2), Script("Clean.")) as c:
        await c.ask_and_hold("one")
        c.session.send("never asked")
        await c.type("/close")
        await c.ready()
        await c.ask("two")
        assert [m.content for m in c.engine.asked[-1]] == ["two"]


async def test_a_chat_that_is_closed_during_its_reply_is_forgotten_once_that_is_saved(
    chat, tmp_path
):
    recorder = quick_recorder(tmp_path / "chats.db")
    async with chat(Script(LONG, hold_at=2), recorder=recorder) as c:
        await c.ask_and_hold("one")
        identity, archive = recorder.info.id, recorder.archive
        opened = await archive.open(identity)
        c.session.close()
        c.session.show_saved(opened)  # before the reply has ended
        c.session.close()
        await c.until(lambda: not c.session.replies.running)
        await archive.chats()
        await c.until(lambda: identity not in recorder._saver._chats)
        _, reply = (await archive.load(identity)).messages
        assert reply.end == "interrupt"


async def test_each_chat_is_saved_as_its_own(chat, tmp_path):
    path = tmp_path / "chats.db"
    async with chat(
        Script(LONG, hold_at=2),
        Script("Two."),
        recorder=quick_recorder(path),
    ) as c:
        await c.ask_and_hold("first")
        await c.pilot.press("ctrl+n")
        await c.type("second")
        c.engine.go.set()
        await c.sees("Two.")
        await c.ready()
        await c.type("/resume")  # the last one is open: nothing is opened twice
        await c.until(lambda: not c.composer.text)
        assert len(c.session.chats.all) == 2
    with ChatStore(path) as store:
        saved = [store.load(listed.info.id) for listed in store.listed()]
    assert sorted([m.text for m in chat.messages] for chat in saved) == [
        ["first", LONG],
        ["second", "Two."],
    ]


async def test_messages_that_wait_come_back_with_a_chat_that_was_deleted(chat, tmp_path):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db"))
    async with chat(Script("One."), recorder=recorder) as c:
        await c.ask("first")
        c.engine.die()
        await c.until(lambda: c.session.engine.phase is Phase.DEAD)
        await c.type("it waits")
        await c.type("it waits too")
        await c.until(lambda: c.session.chat.queue == ["it waits", "it waits too"])
        await c.type("/delete")
        await c.until(lambda: "/undo" in c.stats)
        await c.type("/undo")
        await c.sees("it waits too")
        said = [turn.text for turn in c.session.chat.conversation.turns]
        assert said == ["first", "One.", "it waits", "it waits too"]


async def test_a_chat_whose_tool_asks_is_not_deleted(chat, monkeypatch):
    async with chat(Script("One.")) as c:
        await c.ask("first")
        monkeypatch.setattr(c.session.tools, "of", lambda _: [object()])
        await c.type("/delete")
        await c.until(lambda: "a tool runs or asks in this chat; Esc stops it" in c.stats)
        monkeypatch.undo()


async def test_a_chat_is_deleted_and_brought_back(chat, tmp_path):
    path = tmp_path / "chats.db"
    async with chat(Script("One."), recorder=quick_recorder(path)) as c:
        await c.type("/undo")
        await c.until(lambda: "nothing deleted" in c.stats)
        await c.type("/delete")
        await c.until(lambda: "this chat is empty" in c.stats)
        await c.ask("first")
        await c.type("/delete")
        await c.until(lambda: 'deleted "first"; /undo' in c.stats)
        assert not c.session.chat.conversation.turns
        assert await c.session.chat.recorder.archive.chats() == []
        await c.type("/undo")
        await c.sees("One.")
        assert len(await c.session.chat.recorder.archive.chats()) == 1
        assert len(c.session.chats.all) == 1


async def test_a_deleted_chat_that_cannot_be_brought_back_now_can_be_later(
    chat, tmp_path, monkeypatch
):
    failures, restore = [ChatsError("the chats are locked")], ChatArchive.restore

    async def restored(archive, identity):
        if failures:
            raise failures.pop()
        await restore(archive, identity)

    monkeypatch.setattr(ChatArchive, "restore", restored)
    async with chat(Script("One."), recorder=quick_recorder(tmp_path / "chats.db")) as c:
        await c.ask("first")
        await c.type("/delete")
        await c.until(lambda: "/undo" in c.stats)
        await c.type("/undo")
        await c.sees("the chats are locked")
        await c.type("/undo")
        await c.sees("One.")


async def test_a_chat_in_which_the_model_speaks_is_not_deleted(chat, tmp_path):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db"), "demo")
    async with chat(Script(LONG, hold_at=2), recorder=recorder) as c:
        await c.ask_and_hold("first")
        await c.type("/delete")
        await c.until(lambda: "Esc stops it" in c.stats)
        assert c.session.chat.conversation.turns


async def test_another_model_answers_in_all_of_them(chat, known):
    second = FakeEngine([Script("B1."), Script("B2.")])
    async with chat(Script("A1."), Script("A2.")) as c:
        c.session.engine.options = Options()
        c.session.engine.reopen = lambda options: second
        await c.ask("one")
        await c.pilot.press("ctrl+n")
        await c.ask("two")
        await c.type("/model other")
        await c.until(lambda: second.opened == 1)
        await c.ask("more")
        await c.pilot.press("ctrl+pageup")
        await c.ask("more of one")
        assert [m.content for m in second.asked[1]] == ["one", "A1.", "more of one"]


async def test_what_is_typed_after_a_key_for_another_chat_is_sent_there(chat):
    async with chat(Script("One."), Script("Two."), Script("Three.")) as c:
        await c.ask("first")
        screen = c.app.screen
        screen.call_later(asyncio.sleep, 0.3)  # as on a machine that does much else
        for key in ("a", "enter", "ctrl+n", "b", "enter"):
            c.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await c.until(lambda: len(c.engine.asked) == 3)
        await c.ready()
        said = [[t.text for t in chat.conversation.turns] for chat in c.session.chats.all]
        assert [texts[::2] for texts in said] == [["first", "a"], ["b"]]


@pytest.mark.parametrize("size", [(60, 15), (200, 50)])
async def test_the_title_fits(chat, size):
    async with chat(Script("One."), size=size) as c:
        await c.ask("a long question about very many things that no title can hold at all")
        await c.pilot.press("ctrl+n", "ctrl+pageup")
        await c.until(lambda: "chat 1 of 2: a long question" in c.stats)
        assert all(len(line) <= size[0] for line in c.screen_text.splitlines())


async def test_a_list_asked_for_in_a_chat_just_opened_is_not_wiped_with_the_chat_before(chat):
    async with chat(Script("One.")) as c:
        await c.ask("about foxes")
        c.app.screen.actions.chats.new()
        c.app.screen.actions.chats.open_chats("")  # before the screen shows the new chat
        await c.until(lambda: not c.replies)
        await c.sees("Open chats")


async def test_another_model_stops_a_reply_only_where_it_is_asked_for_twice(chat, known):
    second = FakeEngine([Script("B1.")])
    async with chat(Script(LONG, hold_at=2)) as c:
        c.session.engine.options = Options()
        c.session.engine.reopen = lambda options: second
        await c.ask_and_hold("one")
        await c.type("/model other")
        await c.until(lambda: "the same again stops it" in c.stats)
        assert c.session.replying
        await c.type("/model other")
        await c.until(lambda: second.opened == 1)
        await c.sees("F9 goes on")
        assert c.replies[-1].end == "interrupt"


async def test_a_reply_is_not_stopped_since_the_model_was_asked_for_during_another(chat, known):
    async with chat(Script(LONG, hold_at=2), Script(LONG, hold_at=2)) as c:
        c.session.engine.options = Options()
        c.session.engine.reopen = lambda options: FakeEngine([])
        await c.ask_and_hold("one")
        await c.type("/model other")
        await c.until(lambda: "the same again stops it" in c.stats)
        c.engine.go.set()
        await c.ready()
        await c.ask_and_hold("two")
        await c.until(lambda: "the same again" not in c.stats)
        await c.type("/model other")
        await c.until(lambda: "the same again stops it" in c.stats)
        assert c.session.replying
        c.engine.go.set()


async def test_another_model_is_refused_at_once_while_one_is_being_loaded(chat, monkeypatch):
    asked = []
    monkeypatch.setattr(children, "ask", lambda *words: asked.append(words))
    engine = FakeEngine([Script("A1.")])
    engine.loaded.clear()
    async with chat(engine=engine, ready=False) as c:
        c.session.engine.options = Options()
        c.session.engine.reopen = lambda options: FakeEngine([])
        await c.type("/model other")
        await c.until(lambda: "wait until the model is loaded" in c.stats)
        assert not asked
        engine.loaded.set()


async def test_a_chat_that_is_closed_or_deleted_is_not_open_here_for_other_windows(chat, tmp_path):
    async with chat(Script("Hi."), Script("Hi."), recorder=quick_recorder(tmp_path / "c.db")) as c:
        c.session.presence._folder = tmp_path / "open"
        (tmp_path / "open").mkdir()
        for line in ("/close", "/delete"):
            await c.ask("hello")
            assert [*(tmp_path / "open").iterdir()]
            await c.type(line)
            await c.until(lambda: not c.session.chat.conversation.turns)
            assert not [*(tmp_path / "open").iterdir()]


def note_of(chat, pid, began=None):
    return f"{place.here()}{chat}-{pid}-{starts.began(pid) if began is None else began:.2f}"


def test_windows_on_one_chat_are_told_of_each_other_once(tmp_path):
    here = Presence(tmp_path)
    assert here.note_window("abc") == ""
    other = tmp_path / note_of("abc", os.getppid())
    other.touch()
    assert here.note_window("abc").startswith("another window has this chat open")
    assert here.note_window("abc") == ""
    assert here.note_window("other") == ""
    killed = tmp_path / note_of("abc", 999999999, 7.0)
    killed.touch()
    assert here.note_window("abc") == ""
    assert not killed.exists()
    here.leave("other")
    assert len([*tmp_path.iterdir()]) == 2
    here.close()
    assert [*tmp_path.iterdir()] == [other]


def test_a_window_counts_though_the_clock_was_set_forward_since_it_opened_a_chat(tmp_path):
    Presence(tmp_path).note_window("abc")
    (note,) = tmp_path.iterdir()
    os.utime(note, (0, 0))
    other = tmp_path / note_of("abc", os.getppid())
    other.touch()
    os.utime(other, (0, 0))
    assert Presence(tmp_path).note_window("abc").startswith("another window has this chat open")
    assert other.exists()


def test_a_process_that_has_the_number_of_an_ended_window_is_no_window(tmp_path):
    other = tmp_path / note_of("abc", os.getppid(), starts.began(os.getppid()) - 60)
    other.touch()
    assert Presence(tmp_path).note_window("abc") == ""
    assert not other.exists()


def test_notes_of_killed_windows_go_whichever_chat_they_had_open(tmp_path):
    killed = [tmp_path / note_of(chat, 999999999, 7.0) for chat in ("abc", "other")]
    runs = tmp_path / note_of("a third", os.getppid())
    for note in (*killed, runs):
        note.touch()
    here = Presence(tmp_path)
    assert here.note_window("new") == ""
    assert not any(note.exists() for note in killed)
    here.close()
    assert [*tmp_path.iterdir()] == [runs]


def test_a_window_in_another_container_or_machine_is_left_alone_and_counts_for_none(tmp_path):
    note = tmp_path / note_of("abc", 999999999, 7.0).replace(place.here(), "b0-1-")
    note.touch()
    assert Presence(tmp_path).note_window("abc") == ""
    assert note.exists()
    os.utime(note, (0, 0))  # nobody comes back to remove it
    assert Presence(tmp_path).note_window("abc") == ""
    assert not note.exists()


@pytest.mark.parametrize("name", ["abc-{}", "abc-{}-", "abc-{}-nan", "abc-x-{}", "abc--{}", "abc-"])
def test_a_note_that_names_no_process_and_its_start_counts_for_no_window(tmp_path, name):
    note = tmp_path / f"{place.here()}{name.format(os.getppid())}"
    note.touch()
    assert Presence(tmp_path).note_window("abc") == ""
    assert not note.exists()


@pytest.fixture
async def two_windows(chat, tmp_path):
    """Two windows with one chat; the second one has asked something in it."""
    path = tmp_path / "chats.db"
    first = chat(Script("One."), Script("Three."), recorder=quick_recorder(path), size=(120, 40))
    async with first as here:
        await here.ask("first")
        await here.session.chat.recorder.archive.chats()  # what waits is saved before
        with ChatStore(path) as store:
            saved = store.load(here.session.chat.recorder.info.id)
        second = chat(Script("Two."), recorder=quick_recorder(path), resume=saved)
        async with second as there:
            await there.ask("from the second window")
            await there.session.chat.recorder.archive.chats()
        yield here, path


async def test_resuming_an_open_chat_adds_what_another_window_has_written(two_windows):
    here, path = two_windows
    await here.ask("here")
    await here.type(f"/resume {here.session.chat.recorder.info.id}")
    await here.until(lambda: "2 messages of another window added" in here.stats)
    shown = here.session.chat.conversation
    assert [turn.text for turn in shown.turns] == ["first", "One.", "here", "Three."]
    assert shown.place == (2, 2)
    await here.type("/branch back")
    await here.sees("from the second window")
    await here.ask("and on")
    await here.session.chat.recorder.archive.chats()
    with ChatStore(path) as store:
        saved = store.load(here.session.chat.recorder.info.id)
    assert len(saved.messages) == len(shown.all_turns) == 8
    await here.type(f"/resume {saved.info.id}")
    await here.until(lambda: not here.composer.text)
    assert len(shown.all_turns) == 8


async def test_a_search_shows_a_message_that_another_window_has_written(two_windows):
    here, _ = two_windows
    await here.type("/chats second window")
    await here.until(lambda: here.app.screen.query("#list") and here.app.screen._hits)
    await here.pilot.press("enter")
    await here.until(lambda: here.session.chat.conversation.last.text == "Two.")
    await here.sees("from the second window")


@pytest.fixture
async def growing(two_windows):
    """A chat in which another window is being answered, and what ends that reply."""
    here, path = two_windows
    saver, conversation = Saver(path, interval=0.02), Conversation()
    there = ChatRecorder(saver, "demo")
    there.resume(await there.archive.open(here.session.chat.recorder.info.id), conversation)
    question, reply = conversation.say("what of owls?"), conversation.answer()
    end = there.begin_reply(conversation, question, reply)
    reply.text = "Half"
    end()

    async def ends():
        reply.text, reply.end = "Half and the useful whole.", "stop"
        end()
        await there.archive.chats()

    await there.archive.chats()
    yield here, reply.id, ends
    assert not saver.close()


async def test_resuming_takes_in_what_a_reply_of_another_window_has_grown_to(growing, tmp_path):
    here, reply, ends = growing
    chat = here.session.chat
    await here.type(f"/resume {chat.recorder.info.id}")
    await here.until(lambda: chat.conversation.has(reply))
    await here.pilot.press("alt+down", "alt+up")
    here.session.show_message(reply)
    await here.sees("Half")
    await ends()
    await here.type(f"/export {tmp_path / 'whole.md'}")
    await here.sees("written to")
    assert "useful whole" in (tmp_path / "whole.md").read_text()
    await here.type(f"/resume {chat.recorder.info.id}")
    await here.sees("Half and the useful whole.")
    assert "1 message of another window added" in here.stats
    turn = next(turn for turn in chat.conversation.turns if turn.id == reply)
    assert (turn.end, turn.caption) == ("stop", "")


async def test_a_search_shows_what_a_reply_of_another_window_has_grown_to(growing):
    here, reply, ends = growing
    await here.type(f"/resume {here.session.chat.recorder.info.id}")
    await here.until(lambda: here.session.chat.conversation.has(reply))
    await ends()
    await here.type("/chats useful")
    await here.until(lambda: here.app.screen.query("#list") and here.app.screen._hits)
    await here.pilot.press("enter")
    await here.sees("Half and the useful whole.")


async def test_resuming_an_open_chat_keeps_the_model_chosen_since(two_windows):
    here, path = two_windows
    recorder = here.session.chat.recorder
    recorder.use_model("another", None)
    await here.type(f"/resume {recorder.info.id}")
    await here.until(lambda: "2 messages of another window added" in here.stats)
    recorder.ask(here.session.chat.conversation, here.session.chat.conversation.say("next"))
    await recorder.archive.chats()
    with ChatStore(path) as store:
        assert store.load(recorder.info.id).info.model == "another"


async def test_a_found_message_that_cannot_be_shown_now_is_a_hint(chat):
    async with chat(Script("One."), Script(LONG, hold_at=2)) as c:
        await c.ask("first")
        finder = c.app.screen.actions.finder
        await finder.show_message(1, "words")
        assert "not in this chat any more" in c.stats
        await c.ask_and_hold("second")
        await finder.show_message(1, "words")
        await c.until(lambda: "the model is replying in this chat" in c.stats)


async def test_what_is_typed_in_a_chat_that_is_closed_from_the_palette_comes_back(chat):
    async with chat(Script("One.")) as c:
        await c.ask("first")
        c.composer.insert("half a question")
        c.app.screen.actions.runner.offer("/close")
        await c.until(lambda: not c.session.chat.conversation.turns)
        assert c.composer.text == ""
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "half a question")


async def test_a_closed_chat_is_freed(chat, tmp_path):
    saver = Saver(tmp_path / "c.db", interval=0.01)
    async with chat(Script("Hi."), Script("Ho."), recorder=ChatRecorder(saver)) as c:
        await c.ask("hello")
        closed = weakref.ref(c.session.chat)
        identity = c.session.chat.recorder.info.id
        c.session.replies.titles._done.add(c.session.chat)
        await c.type("/close")
        await c.ask("Another")
        await c.until(lambda: identity not in saver._chats)
        while closed() is not None:  # what was on the screen keeps it for some seconds
            await c.pilot.pause(2.5)  # each collection looks at all objects of all tests
            resources.collect_garbage()
