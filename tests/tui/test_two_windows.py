"""Two windows that go on with one chat, each from what it shows."""

import json
from dataclasses import replace

import pytest

from localspec.chats.calls import SavedCall
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from tui.session.conversation import Conversation
from tui.session.recorder import ChatRecorder


class Window:
    def __init__(self, path):
        self.recorder = ChatRecorder(Saver(path, interval=0.02), "demo")
        self.conversation = Conversation()

    async def open(self, chat):
        self.recorder.resume(await self.recorder.archive.open(chat), self.conversation)

    async def make(self, *turns, more=""):
        """A question where there are ``turns``, else the last reply is continued."""
        question, reply = turns or (None, self.conversation.last)
        reply.end = None
        end = self.recorder.begin_reply(self.conversation, question, reply)
        reply.text += more
        reply.end = "interrupt"
        end()
        await self.recorder.archive.chats()  # what waits is saved before

    async def ask(self, question):
        await self.make(self.conversation.say(question), self.conversation.answer(), more="Well.")

    async def take_in(self):
        saved = await self.recorder.archive.open(self.recorder.info.id)
        return self.recorder.take_in(saved, self.conversation)

    @property
    def texts(self):
        return [turn.text for turn in self.conversation.turns]


@pytest.fixture
async def windows(tmp_path):
    path = tmp_path / "chats.db"
    one, two = Window(path), Window(path)
    await one.make(one.conversation.say("Tell me."), one.conversation.answer(), more="abc")
    await two.open(one.recorder.info.id)
    yield one, two
    assert one.recorder.close() == two.recorder.close() == ()


async def test_each_of_two_windows_that_continue_a_reply_takes_in_the_others(windows, tmp_path):
    one, two = windows
    await one.make(more=" by one")
    await one.ask("What of one?")
    await two.make(more=" by two")
    await two.ask("What of two?")
    for window, name in ((one, "one"), (two, "two")):
        shown = window.texts
        assert shown == ["Tell me.", f"abc by {name}", f"What of {name}?", "Well."]
        assert await window.take_in() == 3
        assert await window.take_in() == 0
        assert window.texts == shown
        ways = set()
        for _ in range(2):
            ways.add(tuple(window.texts))
            window.conversation.branch(1) or window.conversation.branch(-1)
        assert {way[1:3] for way in ways} == {
            ("abc by one", "What of one?"),
            ("abc by two", "What of two?"),
        }
        file = tmp_path / f"{name}.json"
        chat = window.recorder.in_memory(window.conversation)
        await window.recorder.archive.export(chat, file)
        (exported,) = json.loads(file.read_text())["chats"]
        texts = sorted(m["text"] for m in exported["messages"])
        assert texts == sorted(turn.text for turn in window.conversation.all_turns)
        assert len(texts) == 7
    await two.ask("And?")
    with ChatStore(tmp_path / "chats.db") as store:
        assert len(store.load(one.recorder.info.id).messages) == 9


async def test_a_search_in_either_window_finds_the_message_that_it_shows(windows):
    one, two = windows
    await one.make(more=" heron")
    await two.make(more=" kingfisher")
    for window in windows:
        await window.take_in()
        for word in ("heron", "kingfisher"):
            (hit,) = await window.recorder.archive.search(word)
            assert window.conversation.show_message(hit.message)
            assert window.texts == ["Tell me.", f"abc {word}"]


@pytest.mark.parametrize("state", ["done", "failed", "refused", "stopped"])
async def test_what_a_window_did_with_a_call_is_taken_in(windows, state):
    one, two = windows
    reply = one.conversation.last
    reply.calls, reply.calls_at = [SavedCall("c", "t", "{}", "s/t", "waiting")], 3
    two.conversation.last.calls, two.conversation.last.calls_at = list(reply.calls), 3
    reply.calls = [replace(reply.calls[0], state=state)]
    one.recorder.save_calls(reply)
    await one.recorder.archive.chats()
    assert await two.take_in() == 1
    assert two.conversation.last.calls[0].state == state


async def test_what_was_read_before_a_question_was_asked_changes_nothing_above_it(windows):
    one, two = windows
    await one.make(more=" by one")
    saved = await two.recorder.archive.open(one.recorder.info.id)
    await two.ask("What of abc?")  # while a thread makes turns of what was read
    assert two.recorder.take_in(saved, two.conversation) == 0
    assert two.texts == ["Tell me.", "abc", "What of abc?", "Well."]
    assert await two.take_in() == 1


def ways(window):
    """The texts of each branch."""
    conversation, found = window.conversation, set()
    while conversation.branch(-1):
        pass
    found.add(tuple(window.texts))
    while conversation.branch(1):
        found.add(tuple(window.texts))
    return found


@pytest.mark.parametrize("grows", [True, False])
async def test_what_another_window_asked_below_its_text_is_not_shown_below_ours(windows, grows):
    one, two = windows
    reply = two.conversation.last
    if grows:  # F9, and a long prompt is read
        reply.end = None
        end = two.recorder.begin_reply(two.conversation, None, reply)
        await two.recorder.archive.chats()
    await one.make(more=" by one")
    await one.ask("What of one?")
    saved = await two.recorder.archive.open(one.recorder.info.id)
    if not grows:  # a question is asked while a thread makes turns of what was read
        await two.ask("And?")
    before = ways(two)
    assert two.recorder.take_in(saved, two.conversation) == 0
    assert ways(two) == before
    if grows:
        reply.text, reply.end = "abc by two", "interrupt"
        end()
        await two.recorder.archive.chats()
    assert await two.take_in() == 3
    theirs = ("Tell me.", "abc by one", "What of one?", "Well.")
    ours = ("Tell me.", "abc by two") if grows else ("Tell me.", "abc", "And?", "Well.")
    assert ways(two) == {theirs, ours}
