"""Files of a message: its own words alone name them, and it is sent where it was written."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc

import pytest
from attaching import attach
from fake_engine import Script
from picture_files import png
from textual import events
from waiting import until_so

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.core.errors import Interrupted, LocalspecError
from localspec.core.files import paths
from localspec.core.processes.bounded import BoundedProcess
from tui.controllers import attached, command_runner
from tui.input import attachments, message_draft
from tui.input.attachments import AttachError, read
from tui.input.message_draft import Draft
from tui.session.recorder import ChatRecorder


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with a file that names another one, and a picture."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "notes.txt").write_text(f"see\n@{tmp_path}/secret.txt")
    (tmp_path / "cat.png").write_bytes(png())
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_text("alpha")
    return tmp_path


def test_a_name_in_an_attached_file_is_text(files):
    sent = attach("Summarize @notes.txt")
    again = sent.replace("Summarize", "Translate")
    assert attach(again) == again
    more = attach(f"{again}\n\nand @d/a.txt")
    assert more == f"{again}\n\nand @d/a.txt\n\nd/a.txt:\n```\nalpha\n```"
    folder = attach("Look at @d/")
    assert attach(folder) == folder


def test_a_name_in_code_is_text(files):
    code = "What does this do?\n```python\n@secret.txt\n@no/such.file(1)\n```\nAnd @d/a.txt?"
    assert attach(code) == f"{code}\n\nd/a.txt:\n```\nalpha\n```"


def test_words_between_two_blocks_of_code_are_the_messages_own(files):
    text = "Compare this:\n```\nfoo\n```\nwith @notes.txt please\n\nand:\n```\nbar\n```"
    assert Draft(text).names() == ["notes.txt"]
    fenced = attachments.Attachment("d/a.txt", "```\n@no.txt\n```\n\n@no.txt").block
    assert Draft(f"Look @d/\n\n{fenced}\n\nand @cat.png").names() == ["d/", "cat.png"]
    assert Draft(f"Look @d/\n\n{fenced}").has("d/")
    assert not Draft(f"Look @d/\n\n{fenced}").has("d/a")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "edited", "names"),
    [
        ("Example:\n```\nb\n```\nand then\n\n" * 35_000 + "@a", "", ["a"]),
        ("```x\n" * 200_000 + "@a", "", ["a"]),
        ("```\nb\n```\n@a\n" * 70_000, "", ["a"]),
        (
            "\n\n".join(f"f{n}:\n```\n\n```" for n in range(40_000)) + " @f9 @a",
            "".join(f"@f{n} " for n in range(40_000)),
            ["a"],
        ),
    ],
)
def test_names_in_a_megabyte_are_found_in_one_pass(text, edited, names):
    """The limit of time is for what takes minutes: a pass for each fence, or each name."""
    assert len(text) > 500_000
    assert Draft(text, edited=edited).names() == names


def test_a_large_paste_is_found_without_a_pattern_as_long_as_it():
    paste = "(a+b)* @no.txt\n" * 20_000
    draft = Draft(f"@notes.txt {paste} @no.txt {paste}", pasted=(paste,))
    tracemalloc.start()
    names = draft.names()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert names == ["notes.txt", "no.txt"]
    assert most < 5 * len(draft.text)


def test_patterns_read_a_message_once_and_none_without_a_name(monkeypatch):
    read_texts = []

    class Counted:
        def finditer(self, text):
            read_texts.append(text)
            return iter(())

    monkeypatch.setattr(message_draft, "_BLOCK", Counted())
    assert not Draft("no name").slow
    assert not read_texts
    question = " ".join(f"@w{n}" for n in range(600))
    draft = Draft(f"{question} now", edited=question)
    assert not draft.slow
    assert read(draft, as_words=True).texts == []
    assert len(read_texts) <= 5


def test_a_name_in_a_pasted_text_is_text_and_one_beside_it_is_none(files):
    paste = f"line\n@{files}/secret.txt @cat.png\n"
    draft = Draft(f"{paste}and @cat.png is what?", (paste,))
    assert [one.name for one in read(draft).texts] == []
    assert read(draft).message.endswith(f"{paste}and cat.png is what?")
    assert Draft(f"@{paste}", (paste,)).names() == []


def test_what_the_changed_question_named_is_not_attached_again(files):
    question = "Look @d/ and read\n@secret.txt"  # pasted at that time
    assert read(Draft(f"{question} now", edited=question)).message == f"{question} now"
    more = read(Draft(f"{question} and @notes.txt", edited=question))
    assert [one.name for one in more.texts] == ["notes.txt"]
    sent = attach("Look @d/")
    (files / "d" / "a.txt").write_text("beta")  # its block was deleted to have it anew
    assert read(Draft("Look @d/", edited=sent)).message == sent.replace("alpha", "beta")


LONG = "@小助手请帮我把下面这一段话翻译成英文，" + "今天的天气非常好，" * 40
"""A paragraph without a space, of more bytes than a name of a file may have."""


async def test_a_word_too_long_for_a_name_is_text_and_can_be_sent(chat):
    async with chat(Script("Yes."), Script("Yes.")) as c:
        c.composer.insert(LONG)
        await c.pilot.press("enter")
        await c.until(lambda: c.engine.asked)
        await c.ready()
        c.composer.insert(f"{LONG}v1.2")  # looks like a path
        await c.pilot.press("enter")
        await c.until(lambda: "long; Enter again sends it as text" in c.flowing_text)
        await c.pilot.press("enter")
        await c.until(lambda: len(c.engine.asked) == 2)
        assert [asked[-1].content for asked in c.engine.asked] == [LONG, f"{LONG}v1.2"]


async def test_a_large_paste_attaches_nothing_at_once_or_when_it_is_changed(chat, files):
    paste = "\n".join(["line"] * 20 + [f"@{files}/secret.txt"])
    async with chat(Script("One."), Script("Two.")) as c:
        c.composer.insert("What is this? ")
        c.composer.post_message(events.Paste(paste))
        await c.until(lambda: "[pasted text 1" in c.composer.text)
        await c.pilot.press("enter")
        await c.until(lambda: c.replies and c.replies[-1].end)
        await c.ready()
        await c.pilot.press("f8")
        await c.until(lambda: paste in c.composer.text)
        await c.pilot.press("!", "enter")
        await c.until(lambda: len(c.engine.asked) == 2)
        sent = [messages[-1].content for messages in c.engine.asked]
        assert sent == [f"What is this? {paste}", f"What is this? {paste}!"]


async def test_a_large_paste_is_no_command(chat):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("first")
        c.composer.post_message(events.Paste(f"/title {'x' * 2000}"))
        await c.until(lambda: "[pasted text 1" in c.composer.text)
        await c.pilot.press("enter")
        await c.until(lambda: len(c.engine.asked) == 2)
        assert c.session.chat.title == "first"


async def test_a_picture_goes_along_beside_a_folder(chat, files):
    async with chat(Script("One.")) as c:
        await c.type("@cat.png compare with @d/")
        await c.until(lambda: c.replies and c.replies[-1].end)
        said = c.session.chat.conversation.turns[0].text
        assert said.startswith("![cat.png](picture:")
        assert said.endswith("\ncompare with @d/\n\nd/a.txt:\n```\nalpha\n```")


async def test_a_picture_that_cannot_be_kept_is_said_while_it_is_named(chat, files):
    paths.make(paths.data_dir() / "pictures").chmod(0o777)
    async with chat(Script("One."), size=(300, 40)) as c:
        c.composer.insert("see @cat.png please")
        await c.sees("cat.png cannot be kept: others may write to")
        await c.pilot.press("enter")
        assert c.app.is_running
        assert c.composer.text == "see @cat.png please"


@pytest.mark.parametrize("named", ["@a.pdf", "@d/"])
def test_a_document_for_which_no_process_can_be_started_is_not_attached(files, monkeypatch, named):
    (files / "a.pdf").write_bytes(b"%PDF-1.4")
    (files / "d" / "b.pdf").write_bytes(b"%PDF-1.4")

    def ask(*_):
        raise LocalspecError("cannot start the process that reads documents: no memory")

    monkeypatch.setattr(BoundedProcess, "ask", ask)
    with pytest.raises(AttachError, match="cannot start the process that reads documents"):
        attach(named)


@pytest.fixture
def reading(monkeypatch):
    """Reading a folder takes until this event."""
    go = threading.Event()

    def slowly(draft, **how):
        if draft.slow:
            go.wait(60)
        return read(draft, **how)

    monkeypatch.setattr(command_runner, "read", slowly)
    yield go
    go.set()


def test_reading_stops_where_nobody_waits_for_it(files):
    (files / "a.pdf").write_bytes(b"%PDF-1.4")
    for named in ("@d/", "@a.pdf"):
        with pytest.raises(Interrupted):
            read(Draft(named), cancelled=lambda: True)


async def test_files_are_measured_once_at_a_time_and_not_beyond_the_end(chat, files, monkeypatch):
    begun, stopped = [], []

    def slowly(draft, *, cancelled, **_):
        begun.append(draft.text)
        while not cancelled():
            time.sleep(0.01)
        stopped.append(draft.text)
        raise Interrupted("nobody waits for it")

    monkeypatch.setattr(attached, "read", slowly)
    async with chat() as c:
        c.composer.insert("@d/ ")
        await c.until(lambda: begun == ["@d/ "])
        c.composer.insert("a")
        await c.until(lambda: begun[1:] == ["@d/ a"])
        assert stopped == ["@d/ "]
    await until_so(lambda: stopped == begun)


async def test_files_that_take_long_go_to_the_chat_in_which_they_were_named(chat, files, reading):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("first")
        written = c.session.chat
        await c.type("look at @d/")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: c.session.chat is not written)
        c.composer.insert("a draft")
        reading.set()
        await c.until(lambda: len(c.engine.asked) == 2)
        assert "alpha" in written.conversation.turns[2].text
        assert c.session.chat is not written
        assert c.composer.text == "a draft"
        assert written.typed == ""


async def test_a_message_whose_files_are_read_when_the_interface_ends_is_kept(
    chat, files, reading, tmp_path
):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db", interval=0.02), "demo")
    async with chat(Script("One."), recorder=recorder) as c:
        await c.ask("first")
        await c.type("look at @d/")
        assert c.session.queue == []
    reading.set()
    with ChatStore(tmp_path / "chats.db") as store:
        assert store.load(store.last().id).messages[-1].text == "look at @d/"


async def test_files_of_a_chat_that_was_closed_are_not_sent(chat, files, reading):
    async with chat(Script("One.")) as c:
        await c.ask("first")
        c.composer.insert("look at @d/")
        await c.pilot.press("enter")
        await c.until(lambda: not c.composer.text)
        c.session.close()
        reading.set()
        await c.until(lambda: c.composer.text == "look at @d/")
        assert len(c.engine.asked) == 1


@pytest.mark.parametrize("closes", [False, True])
async def test_files_still_read_at_the_end_are_saved_in_their_chat_alone(
    chat, files, reading, tmp_path, closes
):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db", interval=0.02), "demo")
    async with chat(Script("One."), Script("Two."), recorder=recorder) as c:
        await c.ask("first")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: len(c.session.chats.all) == 2)
        await c.ask("second")
        await c.type("look at @d/")
        if closes:
            await c.type("/close")
            await c.until(lambda: len(c.session.chats.all) == 1)
    reading.set()
    with ChatStore(tmp_path / "chats.db") as store:
        told = [[m.text for m in store.load(one.info.id).messages] for one in store.listed()]
    kept = [] if closes else ["look at @d/"]
    assert sorted(told) == [["first", "One."], ["second", "Two.", *kept]]


async def test_an_edit_behind_one_whose_files_are_read_is_an_edit_too(chat, files, reading):
    async with chat(Script("One."), Script("Two."), Script("Three."), Script("Four.")) as c:
        await c.ask("one")
        await c.pilot.press("f8")
        await c.until(lambda: c.session.chat.editing is not None)
        await c.type("changed @d/")
        await c.type("quicker")
        await c.until(lambda: len(c.engine.asked) == 2)
        await c.ready()
        assert [m.content for m in c.engine.asked[1]] == ["quicker"]
        assert c.session.chat.editing is None
        reading.set()
        await c.until(lambda: len(c.engine.asked) == 3)
        assert c.engine.asked[2][0].content.startswith("changed")


async def test_what_cannot_come_back_is_not_said_to_be_sent_by_enter(chat, files, reading):
    async with chat(Script("One."), size=(120, 40)) as c:
        await c.ask("first")
        await c.type("look at @d/ and @no.txt")
        c.composer.insert("written since")
        reading.set()
        await c.until(lambda: "there is no file no.txt; Up in an empty line" in c.stats)
        assert "Enter" not in c.stats
        c.composer.text = ""
        await c.pilot.press("up")
        await c.until(lambda: c.composer.text == "look at @d/ and @no.txt")
        await c.pilot.press("enter")
        await c.until(lambda: "no.txt; Enter again sends it as text" in c.stats)
        assert c.composer.text == "look at @d/ and @no.txt"
        assert len(c.engine.asked) == 1


async def test_a_message_whose_files_meet_a_fault_comes_back(chat, files, monkeypatch, outlived):
    def fails(draft, **_):
        raise RuntimeError("the files")

    async with chat(Script("One."), size=(120, 40)) as c:
        monkeypatch.setattr(command_runner, "read", fails)
        for bugs in (1, 2):
            c.composer.text = "look at @d/"
            await c.pilot.press("enter")
            await c.until(lambda n=bugs: c.flowing_text.count("a bug in localspec") == n)
            assert c.composer.text == "look at @d/"
            assert not c.session.unasked
    outlived.clear()


async def test_a_message_of_a_closed_chat_does_not_take_the_place_of_another(chat, files, reading):
    async with chat(Script("One."), size=(120, 40)) as c:
        await c.ask("first")
        await c.type("look at @d/")
        c.session.close()
        c.composer.insert("written since")
        reading.set()
        await c.until(lambda: "its chat was closed; Up in an empty line" in c.stats)
        assert c.composer.text == "written since"


async def test_why_files_are_not_attached_is_said_in_the_chat_that_names_them(chat, files, reading):
    async with chat(Script("One."), size=(120, 40)) as c:
        await c.ask("first")
        written = c.session.chat
        await c.type("look at @d/ and @no.txt")
        await c.pilot.press("ctrl+n")
        await c.until(lambda: c.session.chat is not written)
        reading.set()
        await c.until(lambda: written.typed)
        await c.pilot.pause()
        assert "no.txt" not in c.screen_text
        await c.pilot.press("ctrl+pageup")
        await c.sees("there is no file no.txt")
        assert c.composer.text == "look at @d/ and @no.txt"
        assert "Enter again" not in c.screen_text


async def test_a_changed_question_whose_files_take_long_takes_the_place_of_it(chat, files, reading):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("first")
        c.composer.insert("set aside")
        await c.pilot.press("f8")
        await c.until(lambda: c.composer.text == "first")
        c.composer.text = ""
        c.composer.insert("look at @d/")
        await c.pilot.press("enter")
        await c.until(lambda: not c.composer.text)
        c.composer.insert("typed since")
        reading.set()
        await c.until(lambda: len(c.engine.asked) == 2)
        assert [m.role for m in c.engine.asked[1]] == ["user"]
        assert c.composer.text == "set aside\ntyped since"


async def test_a_saved_chat_that_comes_late_takes_no_text_from_the_chat_that_is_shown(
    chat, tmp_path, monkeypatch
):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db", interval=0.02), "demo")
    go, load = asyncio.Event(), recorder.archive.load

    async def slow(start=None):
        await go.wait()
        return await load(start)

    async with chat(Script("One."), Script("Two."), Script("Three."), recorder=recorder) as c:
        await c.ask("saved")
        saved = c.session.chat.recorder.info.id
        await c.pilot.press("ctrl+n")
        await c.ask("a")
        left = c.session.chat
        await c.pilot.press("ctrl+n")
        await c.ask("b")
        there = c.session.chat
        await c.pilot.press("ctrl+pageup")
        await c.until(lambda: c.session.chat is left)
        monkeypatch.setattr(left.recorder.archive, "load", slow)
        await c.type(f"/resume {saved}")
        c.composer.insert("for a")
        await c.pilot.press("ctrl+pagedown")
        await c.until(lambda: c.session.chat is there)
        c.composer.insert("for b")
        go.set()
        await c.until(lambda: c.session.chat.recorder.info.id == saved)
        assert (left.typed, there.typed) == ("for a", "for b")
