"""Several windows on one chat, that ask and continue without knowing of one another."""

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chats import transfer
from localspec.chats.chat_writer import ChatWriter, Kept
from localspec.chats.placing import Placing
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, new_message_id, started

Way = tuple[str, ...]
"""The texts from the first message to one."""


def said(text: str, parent: int | None = None, role="user", end=None) -> ChatMessage:
    return ChatMessage(new_message_id(parent), parent, role, text, time.time(), end)


class Window:
    """One window: a branch of the chat, and what waits to be saved."""

    def __init__(self, store: ChatStore, chat: Chat) -> None:
        self.store = store
        self.writer = ChatWriter(None, lambda *_: None, threading.Condition())
        self.kept = Kept(chat.info, saved={m.id: m for m in chat.messages})
        self.branch = transfer.branch(chat)

    @property
    def way(self) -> Way:
        return tuple(m.text for m in self.branch)

    def put(self, m: ChatMessage) -> None:
        self.kept.waiting[m.id] = m
        self.kept.info = replace(self.kept.info, leaf=m.id)

    def ask(self, question: str, reply: str) -> None:
        for text, role, end in ((question, "user", None), (reply, "assistant", "interrupt")):
            self.branch.append(said(text, self.branch[-1].id, role, end))
            self.put(self.branch[-1])

    def grow(self, more: str) -> None:
        """Continue the last reply, or tell more of it."""
        last = self.branch[-1]
        self.branch[-1] = replace(last, text=last.text + more)
        self.put(self.branch[-1])

    def save(self) -> None:
        self.writer.write(self.store, [self.kept.take()])

    def read(self) -> Chat:
        """The chat as this window reads it."""
        return self.writer.rows.here(self.store.load(self.kept.info.id))

    def take_in(self) -> None:
        """Read what others have made of the last reply, as `/resume` does."""
        self.save()
        self.kept.saved |= {m.id: m for m in self.read().messages if m.id not in self.kept.saved}
        last = self.branch[-1]
        for m in self.read().messages:
            if m.id == last.id and m.text.startswith(last.text):
                self.branch[-1] = self.kept.saved[m.id] = m


class Three:
    """Three windows with a chat whose reply was stopped, and the ways that have been there."""

    def __init__(self, stores: list[ChatStore]) -> None:
        info, question = started(model="demo"), said("q0")
        reply = said("abc", question.id, "assistant", "interrupt")
        self.info: ChatInfo = replace(info, leaf=reply.id)
        self.stores, self.count = stores, 0
        stores[0].put_chats([Chat(self.info, (question, reply))])
        self.windows = [Window(store, self.stored) for store in stores]
        self.asked: dict[str, Way] = {}
        """Every question, and what had been read before it."""
        self.unsaved: dict[Window, set[str]] = {window: set() for window in self.windows}

    @property
    def stored(self) -> Chat:
        return self.stores[0].load(self.info.id)

    def step(self, rng: random.Random) -> None:
        window = rng.choice(self.windows)
        self.count += 1
        match rng.choice(["grow", "grow", "ask", "save", "save", "kill", "take_in"]):
            case "grow":
                window.grow(f" w{self.count}")
            case "ask":
                question = f"q{self.count}"
                self.asked[question] = window.way
                self.unsaved[window].add(question)
                window.ask(question, f"r{self.count}")
            case "save":
                window.save()
                self.unsaved[window].clear()
            case "take_in":
                window.take_in()
                self.unsaved[window].clear()
            case "kill":
                for question in self.unsaved.pop(window):
                    del self.asked[question]
                at = self.windows.index(window)
                self.windows[at] = Window(window.store, self.stored)
                self.unsaved[self.windows[at]] = set()

    @property
    def wrong(self) -> str:
        for window in self.windows:
            window.save()
        chat = self.stored
        texts = {m.id: m.text for m in chat.messages}
        parents = {m.id: m.parent for m in chat.messages}
        ways = dict[str, Way]()
        for m in chat.messages:
            way, at = list[str](), m.parent
            while at is not None:
                way.insert(0, texts[at])
                at = parents[at]
            ways[m.text] = tuple(way)
        for question, before in self.asked.items():
            if ways.get(question) != before:
                return f"{question} follows {ways.get(question)}, but was asked after {before}"
        for number, window in enumerate(self.windows):
            read = {m.id: m.text for m in window.read().messages}
            if not all(read.get(m.id, "").startswith(m.text) for m in window.branch):
                return f"window {number} reads {read} in place of {window.way}"
            if sorted(read.values()) != sorted(texts.values()):
                return f"window {number} does not read all of {texts}"
        return ""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ChatStore]]:
    path: Path = tmp_path_factory.mktemp("windows") / "chats.db"
    found = [ChatStore(path) for _ in range(3)]
    yield found
    for store in found:
        store.close()


def first_wrong(stores: list[ChatStore]) -> str:
    """What is wrong in one of some random cases."""
    for seed in range(40):
        rng, three = random.Random(seed), Three(stores)
        for _ in range(rng.randint(3, 25)):
            three.step(rng)
        if wrong := three.wrong:
            return f"{seed}: {wrong}"
    return ""


def test_every_question_follows_the_texts_that_its_window_showed(stores):
    assert first_wrong(stores) == ""


@pytest.mark.parametrize(
    ("rule", "does", "what"),
    [("_hold", None, "but was asked after"), ("_is_anothers", False, "in place of")],
)
def test_windows_that_share_a_row_are_found(stores, monkeypatch, rule, does, what):
    monkeypatch.setattr(Placing, rule, lambda *_: does)
    assert what in first_wrong(stores)


def test_what_follows_one_of_two_continuations_does_not_hang_under_the_other(stores):
    three = Three(stores)
    one, two, _ = three.windows
    one.grow(" by one")
    one.save()
    one.ask("what of one?", "This.")
    one.save()
    two.grow(" by two")
    two.save()
    two.ask("what of two?", "That.")
    two.save()
    three.asked = {"what of one?": ("q0", "abc by one"), "what of two?": ("q0", "abc by two")}
    assert three.wrong == ""
    assert [m.text for m in three.stored.messages].count("abc") == 0


def test_a_question_follows_the_reply_as_it_was_before_another_window_continued_it(stores):
    three = Three(stores)
    one, two, _ = three.windows
    one.grow(" by one")
    one.save()
    two.ask("what of abc?", "That.")
    two.save()
    three.asked = {"what of abc?": ("q0", "abc")}
    assert three.wrong == ""
    two.save()
    assert len(three.stored.messages) == 5


def test_a_reply_that_another_window_has_gone_on_from_is_continued_beside_it(stores):
    three = Three(stores)
    one, two, _ = three.windows
    two.ask("what of abc?", "That.")
    two.save()
    one.grow(" by one")
    one.save()
    three.asked = {"what of abc?": ("q0", "abc")}
    assert three.wrong == ""
    assert "abc by one" in [m.text for m in three.stored.messages]
    assert [m.text for m in transfer.branch(three.stored)] == ["q0", "abc by one"]


def test_a_window_alone_makes_no_branch(stores):
    three = Three(stores)
    one = three.windows[0]
    one.ask("q1", "r")
    one.save()
    reply = one.branch.pop()
    one.grow("")
    one.branch.append(reply)
    for _ in range(5):
        one.grow(" more")
        one.save()
    assert [m.text for m in three.stored.messages] == ["q0", "abc", "q1", f"r{' more' * 5}"]


def test_results_of_calls_stay_under_the_reply_whose_window_ran_them(stores):
    three = Three(stores)
    one, two, _ = three.windows

    def calls(window: Window, state: str, result: str | None) -> None:
        call = {"id": "c", "name": "t", "arguments": "{}", "state": state, "result": result}
        last = replace(window.branch[-1], details={"calls": [call], "calls_at": 0})
        window.branch[-1] = last
        window.put(last)
        window.save()

    calls(one, "waiting", None)
    two.take_in()
    for window, result in ((one, "first"), (two, "second")):
        calls(window, "running", None)
        calls(window, "done", result)
    one.ask("what of the first?", "This.")
    one.save()
    two.ask("what of the second?", "That.")
    two.save()
    stored = {m.id: m for m in three.stored.messages}
    under = {m.text: stored[m.parent].details for m in stored.values() if m.text.endswith("?")}
    found = {text: details["calls"][0]["result"] for text, details in under.items()}
    assert found == {"what of the first?": "first", "what of the second?": "second"}
