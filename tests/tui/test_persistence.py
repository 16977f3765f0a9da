"""Chats that are kept: saved as they grow, resumed with their branches."""

import asyncio
import dataclasses
import json
import os
import sqlite3
import threading

import pytest
from fake_engine import FakeEngine, Script
from test_chat import LONG
from textual.widgets import Input
from waiting import turn, until_so

from localspec.chats import saver as saver_module
from localspec.chats import schema, transfer
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, model_at
from localspec.core.errors import ChatsError, OutOfMemoryError
from localspec.core.events import Message
from tui.screens.chats import Preview
from tui.session.archive import ChatArchive, SavedChat
from tui.session.conversation import Conversation
from tui.session.recorder import ChatRecorder
from tui.session.session_engine import Phase
from tui.widgets.chat_log import KEEP, SLACK


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def recorder(path):
    return ChatRecorder(Saver(path, interval=0.02), "demo")


def texts(path, chat=None):
    """Nothing as long as there is no chat: the file is there a moment before."""
    if not path.exists():
        return []
    with ChatStore(path) as store:
        last = store.last()
        if last is None:
            return []
        return [(m.role, m.text) for m in store.load(chat or last.id).messages]


async def test_a_chat_is_saved_and_resumed_as_it_was(chat, path, recorder):
    async with chat(Script("Hi there."), recorder=recorder, system="Be kind") as c:
        await c.ask("Hello, you")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    assert saved.info.title == "Hello, you"
    assert saved.info.model == "demo"
    assert saved.messages[-1].draft == "story-draft-q8"
    assert saved.info.draft is None
    assert [(m.text, m.end) for m in saved.messages] == [
        ("Hello, you", None),
        ("Hi there.", "stop"),
    ]

    async with chat(
        Script("Still here."), recorder=ChatRecorder(Saver(path), "demo"), resume=saved
    ) as c:
        await c.sees("Hi there.")
        await c.sees(" tokens in ")  # the figures came back as well
        await c.ask("And now?")
        assert [m.content for m in c.engine.asked[-1]] == [
            "Be kind",
            "Hello, you",
            "Hi there.",
            "And now?",
        ]
    assert len(texts(path, saved.info.id)) == 4


async def test_a_reply_is_saved_while_it_is_spoken(chat, path, recorder):
    async with chat(Script("one two three four five", hold_at=1), recorder=recorder) as c:
        await c.ask_and_hold("Count")
        shown = c.replies[-1].text
        await c.until(lambda: texts(path)[-1:] == [("assistant", shown)])
        with ChatStore(path) as store:
            assert store.load(store.last().id).messages[-1].end is None
        c.engine.go.set()
        await c.ready()


async def test_a_reply_whose_writer_was_killed_is_shown_as_cut_short(chat, path, recorder):
    async with chat(Script("one two three four five", hold_at=1), recorder=recorder) as c:
        await c.ask_and_hold("Count")
        await c.until(lambda: [text for role, text in texts(path) if role == "assistant" and text])
        with ChatStore(path) as store:
            saved = store.load(store.last().id)
    async with chat(recorder=ChatRecorder(Saver(path)), resume=saved) as c:
        await c.sees("cut short")


async def test_nothing_is_saved_of_a_chat_in_which_nothing_was_said(chat, path, recorder):
    async with chat(recorder=recorder):
        pass
    with ChatStore(path) as store:
        assert store.listed() == []


async def test_a_new_chat_leaves_the_old_one_on_the_list(chat, recorder):
    async with chat(Script("One."), Script("Two."), recorder=recorder) as c:
        await c.ask("First")
        c.session.new()
        await c.ask("Second")
        found = await recorder.archive.chats()
        assert [x.info.title for x in found] == ["Second", "First"]
        assert [x.messages for x in found] == [2, 2]


async def test_another_chat_can_be_resumed_while_one_is_open(chat, recorder):
    async with chat(Script("One."), Script("Two."), Script("Three."), recorder=recorder) as c:
        await c.ask("First")
        first = recorder.info.id
        c.session.new()
        await c.ask("Second")
        await c.session.resume(first[:6])
        await c.sees("One.")
        await c.until(lambda: "Second" not in c.screen_text)
        await c.ask("Third")
        assert recorder.info.id == first
        assert [x.messages for x in await recorder.archive.chats()] == [4, 2]
        with pytest.raises(ChatsError, match="no chat"):
            await c.session.resume("nothing")
        assert recorder.info.id == first


async def test_an_edit_and_another_reply_are_branches_one_can_switch_between(chat, path, recorder):
    scripts = [Script("A."), Script("B."), Script("C."), Script("D.")]
    async with chat(*scripts, recorder=recorder) as c:
        session, turns = c.session, c.session.chat.conversation.turns
        await c.ask("Why?")
        await c.ask("Really?")
        session.regenerate()
        await c.until(lambda: turns and turns[-1].text == "C." and turns[-1].end)
        assert [t.text for t in turns] == ["Why?", "A.", "Really?", "C."]
        assert [m.content for m in c.engine.asked[-1]] == ["Why?", "A.", "Really?"]
        session.edit(turns[0], "How?")
        await c.until(lambda: turns and turns[-1].text == "D." and turns[-1].end)
        assert [t.text for t in turns] == ["How?", "D."]
        assert len(c.engine.asked[-1]) == 1
        assert session.branch(-1)
        assert [t.text for t in turns] == ["Why?", "A.", "Really?", "C."]
        assert not session.branch(2)
        assert session.branch(-1)
        await c.sees("B.")
        await c.until(lambda: "C." not in c.screen_text)
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    assert len(saved.messages) == 7
    async with chat(recorder=ChatRecorder(Saver(path)), resume=saved) as c:
        assert [t.text for t in c.session.chat.conversation.turns] == [
            "Why?",
            "A.",
            "Really?",
            "B.",
        ]


async def test_a_reply_that_is_stopped_for_another_branch_stays_on_its_own(chat, path, recorder):
    async with chat(
        Script("one two three four five six", hold_at=1), Script("Two."), recorder=recorder
    ) as c:
        await c.ask_and_hold("First")
        turns = c.session.chat.conversation.turns
        c.session.edit(turns[0], "Second")
        await c.until(lambda: turns and turns[-1].text == "Two." and turns[-1].end)
    said = texts(path)
    assert said[0] == ("user", "First")
    assert said[1][1].startswith("one")
    assert said[2:] == [("user", "Second"), ("assistant", "Two.")]


async def test_a_title_stays_whatever_is_said(chat, path, recorder):
    async with chat(Script("One."), recorder=recorder) as c:
        c.session.chat.recorder.rename("Mine")
        await c.ask("Hello")
    with ChatStore(path) as store:
        assert store.last().title == "Mine"


async def test_an_export_is_a_new_private_file(chat, tmp_path, recorder):
    async with chat(Script("One."), recorder=recorder) as c:
        await c.ask("Hello")
        shown = recorder.in_memory(c.session.chat.conversation)
        await recorder.archive.export(shown, tmp_path / "chat.md")
        assert "## Model\n\nOne.\n" in (tmp_path / "chat.md").read_text()
        assert (tmp_path / "chat.md").stat().st_mode & 0o077 == 0
        with pytest.raises(ChatsError, match="there already"):
            await recorder.archive.export(shown, tmp_path / "chat.md")
        with pytest.raises(ChatsError, match="cannot write"):
            await recorder.archive.export(shown, tmp_path / "no" / "chat.json")


@pytest.mark.parametrize(("name", "made"), [("c.json", "to_json"), ("c.md", "to_markdown")])
async def test_the_interface_goes_on_while_an_export_is_made(
    chat, tmp_path, recorder, monkeypatch, name, made
):
    threads, make = [], getattr(transfer, made)

    def noted(what):
        threads.append(threading.current_thread())
        return make(what)

    monkeypatch.setattr(transfer, made, noted)
    async with chat(Script("One."), recorder=recorder) as c:
        await c.ask("Hello")
        await c.type(f"/export {tmp_path / name}")
        await c.sees("written to")
    assert "One." in (tmp_path / name).read_text()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_where_chats_cannot_be_saved_one_goes_on_and_knows(chat, path, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.02)
    monkeypatch.setattr(saver_module, "_RETRY", 0.02)
    ChatStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with chat(Script("One."), recorder=ChatRecorder(Saver(path, interval=0.02))) as c:
        await c.ask("Hello")
        await c.sees("not being saved")
        await c.sees("locked")
        other.execute("ROLLBACK")
        await c.sees("saved again")
    other.close()
    assert texts(path) == [("user", "Hello"), ("assistant", "One.")]


async def test_on_a_full_disk_one_goes_on_and_the_chat_is_saved_when_there_is_room(chat, path):
    saver = Saver(path, interval=0.02)
    pages = saver.call(lambda store: store._db.execute("PRAGMA page_count").fetchone()[0]).result(5)

    def limit(pages):
        return saver.call(
            lambda store: store._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()
        )

    limit(pages + 1).result(5)
    long = "word " * 5000
    async with chat(Script(long), Script("Still here."), recorder=ChatRecorder(saver, "demo")) as c:
        await c.ask("Hello")
        await c.until(lambda: "is full; free some space" in c.flowing_text)
        await c.ask("And now?")
        await c.sees("Still here.")
        limit(pages + 1000).result(5)
        await c.sees("saved again")
    assert texts(path)[1] == ("assistant", long)
    assert texts(path)[3] == ("assistant", "Still here.")


async def test_a_chat_erased_elsewhere_is_told_there_exported_from_the_screen_and_stops_no_other(
    chat, path, tmp_path
):
    recorder = ChatRecorder(Saver(path, interval=0.02))
    scripts = [Script(f"{number}.") for number in ("One", "Two", "Three", "Four")]
    async with chat(*scripts, recorder=recorder) as c:
        await c.ask("Hello")
        erased = recorder.info.id
        await recorder.archive.chats()
        with ChatStore(path) as store:
            store.erase(erased)
        await c.ask("Still there?")
        await c.until(lambda: "is not being saved: it was erased elsewhere" in c.flowing_text)
        await c.type(f"/export {tmp_path / 'kept.md'}")
        await c.sees("written to")
        exported = (tmp_path / "kept.md").read_text()
        assert "Hello" in exported
        assert "Two." in exported
        await c.type("/again")
        await c.until(lambda: "Three." in c.screen_text and "Two." not in c.screen_text)
        assert c.flowing_text.count("is not being saved: it was erased elsewhere") == 1
        await c.ready()
        await c.pilot.press("ctrl+n")
        await c.ask("Another one")
        assert "not being saved" not in c.flowing_text
        await c.pilot.press("f12")
        await c.until(lambda: "is not being saved: it was erased elsewhere" in c.flowing_text)
        app = c.app
    assert app.unsaved == ('3 messages of "Hello" not saved: it was erased elsewhere',)
    with ChatStore(path) as store:
        assert [listed.info.title for listed in store.listed()] == ["Another one"]


async def test_a_chat_that_fails_while_another_is_shown_is_named_there(chat, path):
    recorder = ChatRecorder(Saver(path, interval=0.02))
    async with chat(
        Script("One."),
        Script("Two."),
        Script("one two three four five", hold_at=1),
        recorder=recorder,
    ) as c:
        await c.ask("First chat")
        first = recorder.info.id
        await c.pilot.press("ctrl+n")
        await c.ask("Second chat")
        await c.pilot.press("f12")
        await c.ask_and_hold("More")
        await c.pilot.press("f12")
        await recorder.archive.chats()
        with ChatStore(path) as store:
            store.erase(first)
        c.engine.go.set()
        await c.until(lambda: '"First chat": this chat is not being saved' in c.flowing_text)


async def test_where_nothing_can_be_saved_a_new_chat_says_so_and_is_exported(chat, path, tmp_path):
    path.parent.mkdir()
    path.write_bytes(b"nothing of the kind" * 99)
    recorder = ChatRecorder(Saver(path, interval=0.02))
    async with chat(Script("One."), Script("Two."), recorder=recorder) as c:
        await c.ask("Hello")
        await c.sees("damaged")
        await c.pilot.press("ctrl+n")
        await c.sees("damaged")
        await c.ask("And here?")
        await c.type(f"/export {tmp_path / 'kept.json'}")
        await c.sees("written to")
    assert "And here?" in (tmp_path / "kept.json").read_text()


async def test_a_damaged_file_is_told_at_the_end_as_well(chat, path):
    path.parent.mkdir()
    path.write_bytes(b"nothing of the kind" * 99)
    async with chat(Script("One."), recorder=ChatRecorder(Saver(path, interval=0.02))) as c:
        await c.ask("Hello")
        await c.sees("damaged")
        with pytest.raises(ChatsError, match="damaged"):
            await c.session.chat.recorder.archive.chats()
        app = c.app
    assert "damaged" in app.unsaved[0]


async def test_without_a_place_nothing_is_kept_and_asking_says_so(chat):
    async with chat(Script("One.")) as c:
        await c.ask("Hello")
        with pytest.raises(ChatsError, match="not saved"):
            await c.session.chat.recorder.archive.chats()


async def test_a_long_chat_is_resumed_with_its_newest_messages_on_show(chat, recorder):
    engine = FakeEngine([Script(f"Reply {n}.") for n in range(13)])
    async with chat(engine=engine, recorder=recorder) as c:
        for n in range(13):
            c.session.send(f"QuestionView {n}")
        await c.until(lambda: len(c.replies) == 13 and c.replies[-1].end, 40)
        first = recorder.info.id
        await asyncio.sleep(0)
        c.session.new()
        await c.session.resume(first)
        await c.until(lambda: len(c.app.screen.query("ReplyView")) == KEEP // 2)
        await c.sees("Reply 12.")
        await c.pilot.press("ctrl+o")
        await c.until(lambda: len(c.app.screen.query("ReplyView")) == min(13, (KEEP + SLACK) // 2))


async def test_again_edit_and_the_way_back_between_branches(chat):
    async with chat(Script("One."), Script("Two."), Script("Three.")) as c:
        await c.ask("Hello")
        await c.pilot.press("f5")
        await c.sees("Two.")
        await c.ready()
        assert "One." not in c.screen_text
        await c.pilot.press("alt+up")
        await c.sees("One.")
        await c.sees("branch 1 of 2")
        await c.pilot.press("alt+up")
        await c.until(lambda: "this is the first branch" in c.stats)
        await c.pilot.press("f8")
        await c.until(lambda: c.composer.text == "Hello")
        await c.pilot.press("!", "enter")
        await c.sees("Three.")
        assert c.engine.asked[-1] == (Message("user", "Hello!"),)


async def test_a_disk_that_is_slow_holds_up_no_key_and_what_follows_keeps_its_order(
    chat, recorder, monkeypatch
):
    go = asyncio.Event()
    load = recorder.archive.load

    async def slow(start=None):
        await go.wait()
        return await load(start)

    monkeypatch.setattr(recorder.archive, "load", slow)
    async with chat(Script("One."), Script("Two."), recorder=recorder) as c:
        await c.ask("First")
        await c.type("/resume")
        await c.type("Second")
        await c.pilot.press("f2")
        await c.sees("first token")  # the details, while the chat is waited for
        assert len(c.replies) == 1
        go.set()
        await c.until(lambda: len(c.replies) == 2)


async def test_a_search_finds_the_titles_that_a_person_gave(chat, recorder):
    async with chat(Script("A fox."), Script("A bear."), recorder=recorder) as c:
        await c.ask("Tell me of a fox")
        await c.type("/title Woods and Rivers")
        await c.type("/new")
        await c.type("/chats river wood")
        await c.sees("Woods and Rivers")
        await c.leave()
        await c.type("/chats lake")
        await c.sees("no title or message contains this")


async def test_a_list_that_is_closed_while_it_searches_ends_its_search_alone(
    chat, recorder, monkeypatch
):
    searching, closed, list_ = asyncio.Event(), asyncio.Event(), None

    async def search(*_):
        searching.set()
        try:
            await until_so(lambda: list_ and not list_.query(Input), pause=turn)
        finally:
            closed.set()
        return []

    async def waits(_):
        await closed.wait()

    monkeypatch.setattr(ChatArchive, "search", search)
    monkeypatch.setattr(Preview, "on_unmount", waits, raising=False)
    async with chat(Script("A fox."), recorder=recorder) as c:
        await c.type("/chats lake")
        await c.until(searching.is_set)
        list_ = c.app.screen
        await c.leave()
        await c.until(lambda: not list_.is_attached)
        await c.ask("Tell me of a fox")


async def test_the_error_of_one_search_is_not_that_of_the_next(chat, recorder, monkeypatch):
    async with chat(Script("A fox."), recorder=recorder) as c:
        await c.ask("Tell me of a fox")
        found, search = [ChatsError("the chats are locked")], ChatArchive.search

        async def failing(archive, query):
            if found:
                raise found.pop()
            return await search(archive, query)

        monkeypatch.setattr(ChatArchive, "search", failing)
        await c.type("/chats zz")
        await c.sees("the chats are locked")
        await c.pilot.press("y")
        await c.sees("no title or message contains this")


async def test_a_long_title_hides_neither_the_place_that_was_found_nor_its_word(chat, recorder):
    found = f"{'before ' * 30}the needle is here {'after ' * 30}"
    async with chat(Script(found), recorder=recorder, size=(80, 24)) as c:
        await c.ask("Where?")
        await c.type(f"/title {'a very long title of a chat ' * 4}")
        await c.type("/chats needle")
        await c.until(lambda: any("needle is" in row for row in c.screen_text.splitlines()[4:8]))


async def test_the_preview_of_a_chat_is_typeset_and_fills_its_room(chat, recorder):
    reply = "**Bold** first.\n\n- one\n- two\n\n```\ncode = 1\n```"
    async with chat(Script(reply), Script("Last."), recorder=recorder, size=(120, 35)) as c:
        await c.ask("Show a list")
        await c.ask("And now?")
        await c.pilot.press("ctrl+l")
        await c.until(lambda: "code = 1" in c.screen_text and "Last." in c.screen_text)
        shown = c.screen_text
        assert "**" not in shown
        assert "```" not in shown
        assert shown.index("• one") < shown.index("• two") < shown.index("Last.")


async def test_emphasis_without_end_is_shown_in_its_chat_and_in_the_preview(chat, recorder):
    reply = "*" * 9_990 + "deep" + "*" * 9_990
    async with chat(Script(reply), recorder=recorder, size=(120, 35)) as c:
        await c.ask("Say it")
        await c.until(lambda: "*" not in c.screen_text and "deep" in c.screen_text)
        await c.pilot.press("ctrl+l")
        await c.until(lambda: "deep" in c.screen_text and "2 messages" in c.screen_text)


async def test_a_chat_in_which_nothing_was_said_is_not_exported(chat, recorder, tmp_path):
    async with chat(recorder=recorder) as c:
        await c.type(f"/export {tmp_path / 'x.md'}")
        await c.until(lambda: "this chat is empty" in c.stats)
        assert not (tmp_path / "x.md").exists()


async def test_chats_are_imported_from_inside_and_one_is_looked_at(chat, recorder, tmp_path):
    file = tmp_path / "one.json"
    async with chat(Script("A fox."), recorder=recorder) as c:
        await c.ask("Tell me of a fox")
        await c.type(f"/export {file}")
        await c.sees("written to")
        await c.type("/new")
        await c.until(lambda: not c.session.chat.conversation.turns)
        await c.type(f"/import {file}")
        await c.sees("A fox.")
        assert len(await recorder.archive.chats()) == 2
        file.write_text("{}", encoding="utf-8")
        await c.type(f"/import {file}")
        await c.sees("one.json: ")
        await c.type(f"/import {tmp_path}/nothing")
        await c.sees("cannot read")
        os.mkfifo(tmp_path / "pipe")
        await c.type(f"/import {tmp_path}/pipe")
        await c.until(lambda: "no regular file" in c.flowing_text)


@pytest.mark.parametrize("several", [False, True])
async def test_an_import_says_whose_server_it_leaves_out(chat, recorder, tmp_path, several):
    said = {"id": 1, "parent": None, "role": "user", "text": "Hi", "created": 1.0}
    one = {"title": "far", "created": 1.0, "updated": 1.0, "messages": [said]}
    one["model"] = model_at("http://10.0.0.9:8080", "m")
    whole = {"format": "localspec-chats", "version": 1, "chats": [one] * (1 + several)}
    file = tmp_path / "far.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    async with chat(recorder=recorder) as c:
        await c.type(f"/import {file}")
        if several:
            await c.sees("Imported")
            await c.leave()
        await c.sees("'far' was answered at http://10.0.0.9:8080")


async def test_up_brings_back_what_was_asked_in_an_earlier_session(chat, path, recorder):
    async with chat(Script("Hi there."), recorder=recorder) as c:
        await c.ask("Hello, you")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    async with chat(recorder=ChatRecorder(Saver(path), "demo"), resume=saved) as c:
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "Hello, you")


async def test_a_resumed_chat_tells_how_full_the_context_is(chat, path, recorder):
    async with chat(Script("Hi there."), recorder=recorder) as c:
        await c.ask("Hello, you")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    async with chat(recorder=ChatRecorder(Saver(path), "demo"), resume=saved) as c:
        await c.pilot.press("f6")
        await c.sees("ctx 14/2048")


async def test_every_branch_can_be_reached_and_the_title_says_which_it_is(chat):
    scripts = [Script("One."), Script("Two."), Script("Three.")]
    async with chat(*scripts) as c:
        await c.ask("Hello")
        await c.pilot.press("f5")
        await c.sees("Two.")
        await c.ready()
        await c.pilot.press("f8", "!", "enter")
        await c.sees("Three.")
        await c.ready()
        await c.sees("branch 3 of 3")
        for key, reply in [("up", "Two."), ("up", "One."), ("down", "Two."), ("down", "Three.")]:
            await c.pilot.press(f"alt+{key}")
            await c.until(lambda reply=reply: c.replies[-1].text == reply)
        await c.pilot.press("alt+down")
        await c.until(lambda: "this is the last branch" in c.stats)
        await c.sees("branch 3 of 3")


@pytest.mark.slow
async def test_the_bottom_line_has_the_figures_of_the_branch_that_is_shown(chat):
    async with chat(Script(LONG, seconds=0.5), Script(LONG, seconds=0.01)) as c:
        await c.ask("Hello")
        slow = c.stats.partition(" ·")[0]
        await c.pilot.press("f5")
        await c.until(lambda: len(c.engine.asked) == 2)
        await c.ready()
        await c.until(lambda: "tok/s" in c.stats and c.stats.partition(" ·")[0] != slow)
        fast = c.stats.partition(" ·")[0]
        for key, speed in (("alt+up", slow), ("alt+down", fast)):
            await c.pilot.press(key)
            await c.until(lambda speed=speed: c.stats.partition(" ·")[0] == speed)


async def test_an_earlier_question_is_edited_and_its_branch_begins_there(chat):
    scripts = [Script("One."), Script("Two."), Script("Three.")]
    async with chat(*scripts) as c:
        await c.ask("First")
        await c.ask("Second")
        c.composer.insert("begun")
        await c.pilot.press("f8")
        await c.until(lambda: c.composer.text == "Second")
        await c.sees("editing question 2 of 2")
        await c.pilot.press("f8")
        await c.until(lambda: c.composer.text == "First")
        await c.sees("editing question 1 of 2")
        await c.pilot.press("!", "enter")
        await c.sees("Three.")
        assert c.engine.asked[-1] == (Message("user", "First!"),)
        assert c.composer.text == "begun"
        assert "editing" not in c.screen_text


async def test_escape_leaves_an_edit_and_what_was_typed_before_comes_back(chat):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("First")
        c.composer.insert("begun")
        await c.pilot.press("f8", "x", "f8")
        await c.until(lambda: "Enter sends the changed" in c.stats)
        assert c.composer.text == "Firstx"
        await c.pilot.press("escape")
        await c.until(lambda: c.composer.text == "begun")
        assert "editing" not in c.screen_text
        await c.pilot.press("enter")
        await c.sees("Two.")
        assert [turn.text for turn in c.session.chat.conversation.turns][2] == "begun"


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_up_brings_back_a_changed_question_that_was_left(chat, key):
    async with chat(Script("One.")) as c:
        await c.ask("First")
        await c.pilot.press("f8")
        await c.until(lambda: c.composer.text == "First")
        c.composer.text = "First, and much more that took long to write"
        await c.pilot.press(key)
        await c.until(lambda: "brings the changed question back" in c.stats)
        assert not c.composer.text
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text.startswith("First, and much more"))


async def test_chats_are_listed_searched_resumed_named_and_exported_from_inside(
    chat, recorder, tmp_path
):
    async with chat(Script("A fox."), Script("A bear."), recorder=recorder, size=(100, 40)) as c:
        await c.ask("Tell me of a fox")
        await c.type("/title Animals")
        await c.type("/new")
        await c.ask("Tell me of a bear")
        await c.pilot.press("ctrl+l")
        await c.sees("Animals")
        await c.pilot.press(*"fox")
        await c.sees("A fox.")
        await c.pilot.press("enter")
        await c.until(lambda: "A bear." not in c.screen_text)
        await c.sees("A fox.")
        await c.sees("Animals  demo")
        file = tmp_path / "animals.md"
        await c.type(f"/export {file}")
        await c.sees("written to")
        assert "A fox." in file.read_text(encoding="utf-8")
        await c.type("/resume nothing")
        await c.sees("no chat")


async def test_loading_can_be_stopped_and_begun_again(chat):
    engine = FakeEngine([Script("One.")])
    engine.loaded.clear()
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: c.session.engine.loading is not None)
        c.session.send("Hello")
        await c.pilot.press("escape")
        await c.sees("loading was stopped")
        assert c.session.engine.phase is Phase.DEAD
        await c.pilot.press("ctrl+r")
        await c.sees("One.")


async def test_a_reply_of_an_earlier_session_is_coloured_examined_and_compared(
    chat, path, recorder
):
    said = "One two three four five."
    async with chat(Script(said), Script("Fine."), recorder=recorder, system="Be kind") as c:
        await c.ask("Hello")
        await c.ask("And?")
        made = [c.session.chat.conversation.recipe_of(t) for t in c.replies]
        tokens = [t.tokens for t in c.replies]
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    again = Script("Fine."), Script(said)
    async with chat(
        *again, recorder=ChatRecorder(Saver(path), "demo"), resume=saved, size=(110, 40)
    ) as c:
        await c.sees("One two")
        assert [t.tokens for t in c.replies] == tokens
        conversation = c.session.chat.conversation
        assert [conversation.recipe_of(t) for t in c.replies] == made
        await c.pilot.press("alt+left")
        await c.sees("token 1/1")
        await c.until(lambda: c.engine.examined == [made[1].reply.tokens])
        await c.pilot.press("f3")
        await c.sees("identical: all 1 tokens are the same")
        assert c.engine.asked[0] == made[1].messages


async def test_a_saved_reply_is_made_again_from_what_is_before_it_only_when_that_is_asked_for(
    chat, path, recorder
):
    async with chat(Script("One."), Script("Two."), Script("Three."), recorder=recorder) as c:
        await c.ask("First")
        await c.ask("Second")
        await c.type("/again")
        await c.until(lambda: c.replies[-1].text == "Three." and c.replies[-1].end)
        await c.ready()
        shown = c.session.chat.conversation
        made = {t.id: shown.recipe_of(t) for t in shown.all_turns}
    with ChatStore(path) as store:
        saved = SavedChat.of(store.load(store.last().id))
    conversation, saver = Conversation(), Saver(path)
    resumed = ChatRecorder(saver, "demo")
    resumed.resume(saved, conversation)
    assert {turn.made for turn in conversation.all_turns} == {None}
    assert {t.id: conversation.recipe_of(t) for t in conversation.all_turns} == made
    known = [m.details for m in resumed.in_memory(conversation).messages]
    assert known == [m.details for m in saved.chat.messages]
    assert not saver.close()


async def test_another_model_knows_the_tokens_of_a_chat_but_not_how_to_make_them(
    chat, path, recorder
):
    async with chat(Script("One two."), recorder=recorder) as c:
        await c.ask("Hello")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    async with chat(recorder=ChatRecorder(Saver(path), "other"), resume=saved, size=(110, 40)) as c:
        await c.pilot.press("alt+left")
        await c.sees("token 2/2")
        await c.sees("p and q are no longer available")
        await c.pilot.press("f3")
        await c.until(lambda: "there is no reply" in c.stats)


@pytest.mark.parametrize("last", ["demo", "other"])
@pytest.mark.parametrize("taken_in", [False, True], ids=["resumed", "taken in"])
async def test_a_model_knows_how_to_make_its_own_replies_alone_whoever_answered_last(
    chat, path, recorder, last, taken_in
):
    async with chat(*(Script(f"{n}.") for n in range(3)), recorder=recorder) as c:
        for n in range(3):
            await c.ask(f"question {n}")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    wrote = dict(zip(range(1, 6, 2), ("demo", "other", "other, then demo"), strict=True))
    messages = tuple(
        dataclasses.replace(m, details={**m.details, "model": wrote[n]}) if n in wrote else m
        for n, m in enumerate(saved.messages)
    )
    info = dataclasses.replace(saved.info, model=last)
    conversation, resumed = Conversation(), ChatRecorder(None, "demo")
    if taken_in:
        resumed.take_in(SavedChat.of(Chat(info, messages)), conversation)
    else:
        resumed.resume(SavedChat.of(Chat(info, messages)), conversation)
    replies = [turn for turn in conversation.all_turns if turn.role == "assistant"]
    known = [conversation.recipe_of(turn) is not None for turn in replies]
    assert known == [True, False, True]


async def test_what_another_version_kept_of_the_tokens_is_left_out(chat, path, recorder):
    async with chat(Script("One two."), recorder=recorder) as c:
        await c.ask("Hello")
    with ChatStore(path) as store:
        saved = store.load(store.last().id)
    question, reply = saved.messages
    for odd in ({"ids": [1]}, {**reply.details["tokens"], "lengths": [99, 99]}, 7):
        strange = dataclasses.replace(reply, details={**reply.details, "tokens": odd})
        chat_then = dataclasses.replace(saved, messages=(question, strange))
        async with chat(recorder=ChatRecorder(Saver(path), "demo"), resume=chat_then) as c:
            await c.sees("One two.")
            assert c.replies[0].tokens == []
            assert c.session.chat.conversation.recipe_of(c.replies[0]) is None


async def test_messages_that_wait_at_the_end_are_there_when_the_chat_is_resumed(chat, path):
    scripts = [Script("A."), Script("B.")]
    async with chat(*scripts, recorder=ChatRecorder(Saver(path))) as c:
        await c.ask("one")
        c.session.tools.starting = True  # those of mcp.json are being started
        await c.type("two")
        await c.type("three")
        c.session.new()
        await c.type("elsewhere")
        assert len(c.engine.asked) == 1
    with ChatStore(path) as store:
        saved = {x.info.title: store.load(x.info.id) for x in store.listed()}
    assert [m.text for m in saved["one"].messages] == ["one", "A.", "two", "three"]
    assert [m.text for m in saved["elsewhere"].messages] == ["elsewhere"]
    async with chat(Script("C."), recorder=ChatRecorder(Saver(path)), resume=saved["one"]) as c:
        await c.sees("three")
        await c.pilot.press("f9")
        await c.sees("C.")
        await c.ready()
        assert [m.content for m in c.engine.asked[-1]] == ["one", "A.", "two\n\nthree"]


async def test_a_message_is_kept_where_the_first_model_cannot_be_loaded(chat, path):
    engine = FakeEngine(open_error=OutOfMemoryError("it needs 900 GB"))
    engine.loaded.clear()
    async with chat(engine=engine, ready=False, recorder=ChatRecorder(Saver(path))) as c:
        await c.type("precious")
        engine.loaded.set()
        await c.until(lambda: c.app.failure is not None)
    with ChatStore(path) as store:
        assert [m.text for m in store.load(store.last().id).messages] == ["precious"]


async def test_a_conversation_that_cannot_be_saved_is_not_said_to_be(chat, tmp_path, monkeypatch):
    (tmp_path / "chats.db").mkdir()  # no file can be written there
    recorder = ChatRecorder(Saver(tmp_path / "chats.db", interval=0.02))
    async with chat(Script("A."), recorder=recorder) as c:
        await c.ask("one")
        await c.sees("not being saved")
        c.engine.die()
        await c.sees("Press Ctrl+R to start the engine again")
        assert "conversation is saved" not in c.screen_text


async def test_a_chat_without_a_message_is_not_said_to_be_saved(chat, recorder):
    async with chat(recorder=recorder) as c:
        c.engine.die()
        await c.sees("Press Ctrl+R to start the engine again")
        assert "conversation is saved" not in c.screen_text


async def test_a_message_behind_a_slow_command_is_listed_taken_back_and_saved(
    chat, path, recorder, monkeypatch
):
    async with chat(Script("Fine."), recorder=recorder) as c:
        await c.ask("First")
        never = asyncio.Event()
        monkeypatch.setitem(c.app.screen.actions.runner._actions, "mcp", lambda _: never.wait())
        await c.type("/mcp on slow")
        await c.type("kept")
        await c.type("taken back")
        await c.sees("sent after the command")
        assert "sent after the command)  kept" in c.screen_text
        await c.pilot.press("up")
        assert c.composer.text == "taken back"
        await c.until(lambda: c.session.queue == ["kept"])
    assert [text for _, text in texts(path)] == ["First", "Fine.", "kept"]


@pytest.mark.parametrize("edits", ["since", "before"])
async def test_a_message_behind_a_slow_command_changes_the_question_edited_when_it_was_sent(
    chat, monkeypatch, edits
):
    async with chat(Script("One."), Script("Two."), Script("Three.")) as c:
        await c.ask("one")
        question, over = c.session.chat.questions[0], asyncio.Event()
        monkeypatch.setitem(c.app.screen.actions.runner._actions, "mcp", lambda _: over.wait())
        await c.type("/mcp on slow")
        if edits == "since":
            await c.type("two")
        await c.pilot.press("f8")
        await c.until(lambda: c.session.chat.editing is question)
        if edits == "before":
            await c.type("changed")
            await c.type("after it")
        over.set()
        await c.until(lambda: len(c.engine.asked) == (2 if edits == "since" else 3))
        await c.ready()
        asked = [message.content for message in c.engine.asked[-1]]
        if edits == "since":
            assert asked == ["one", "One.", "two"]
            assert (c.session.chat.editing, c.composer.text) == (question, "one")
        else:
            assert asked == ["changed", "Two.", "after it"]
            assert c.session.chat.editing is None


@pytest.mark.parametrize("switches", [False, True])
async def test_a_message_behind_a_slow_command_goes_where_it_was_sent_or_a_command_has_led(
    chat, monkeypatch, switches
):
    async with chat(Script("First."), Script("Fine.")) as c:
        await c.ask("one")
        over = asyncio.Event()
        monkeypatch.setitem(c.app.screen.actions.runner._actions, "mcp", lambda _: over.wait())
        await c.type("/mcp on slow")
        if switches:
            await c.type("/new")
        await c.type("two")
        if not switches:
            await c.pilot.press("ctrl+n")
            await c.sees("[2/2]")
        over.set()
        await c.until(lambda: len(c.engine.asked) == 2)
        await c.ready()
        asked = [message.content for message in c.engine.asked[1]]
        assert asked == (["two"] if switches else ["one", "First.", "two"])
        assert c.session.chats.place == 1


async def test_what_waits_is_saved_where_the_engine_cannot_be_closed(chat, path, recorder):
    async def fails():
        raise OSError("no such process")

    with pytest.raises(OSError, match="no such process"):  # noqa: PT012 - the app's end raises it
        async with chat(Script(LONG, hold_at=1), recorder=recorder) as c:
            await c.ask_and_hold("First")
            c.engine.die()
            await c.until(lambda: "engine stopped" in c.stats)
            await c.type("kept")
            c.engine.close = fails
    assert texts(path)[-1] == ("user", "kept")
