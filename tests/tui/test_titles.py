"""Titles by the model: made when idle, cancelled by a question, never in place of the user's."""

import dataclasses

import pytest
from fake_engine import FakeEngine, Script

from localspec import Finished, Message, Options, Runtime, Sampling
from localspec.chats.saver import Saver
from localspec.core.reply_request import ReplyRequest
from tui.session import titles
from tui.session.recorder import ChatRecorder


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(titles, "IDLE", 0.05)


def title(chat):
    return chat.session.chat.title


def asked_for_title(chat):
    return [
        request for request in chat.engine.requests if request.messages[-1].content == titles.ASK
    ]


async def test_an_idle_model_names_a_chat_and_leaves_nothing_in_it(chat):
    async with chat(Script("They hunt at night."), Script("Owls at night"), titles="on") as c:
        await c.ask("What do owls do?")
        await c.until(lambda: title(c) == "Owls at night")
        await c.sees("Owls at night")
        assert [t.text for t in c.session.chat.conversation.turns] == [
            "What do owls do?",
            "They hunt at night.",
        ]
        (request,) = asked_for_title(c)
        assert request.draft
        assert not request.draft_memory
        assert request.max_tokens < 32
        await c.ask("And by day?")
        assert [m.content for m in c.engine.asked[-1]] == [
            "What do owls do?",
            "They hunt at night.",
            "And by day?",
        ]
        assert len(asked_for_title(c)) == 1
        assert title(c) == "Owls at night"


async def test_a_question_cancels_the_title_at_once(chat):
    scripts = [
        Script("They hunt."),
        Script("Never shown", hold_at=0),
        Script("They sleep."),
        Script("Owls by day"),
    ]
    async with chat(*scripts, titles="on") as c:
        await c.ask("What do owls do?")
        await c.until(lambda: c.engine.holding)
        await c.type("And by day?")
        await c.sees("They sleep.")
        await c.until(lambda: title(c) != "What do owls do?")
        assert title(c) == "Owls by day"
        assert len(asked_for_title(c)) == 2


async def test_a_title_that_the_user_gave_stays(chat):
    async with chat(Script("They hunt."), Script("Night", hold_at=0), titles="on") as c:
        await c.ask("What do owls do?")
        await c.until(lambda: c.engine.holding)
        await c.type("/title My owls")
        c.engine.go.set()
        await c.until(lambda: not c.session.replies.titles.busy)
        assert title(c) == "My owls"
        await c.ask("And by day?")
        assert len(asked_for_title(c)) == 1


async def test_keys_put_the_title_off(chat, monkeypatch):
    monkeypatch.setattr(titles, "IDLE", 3600)
    async with chat(Script("They hunt."), titles="on") as c:
        await c.ask("What do owls do?")
        task = c.session.replies.titles
        before = task._touched
        await c.pilot.press("x")
        assert task._touched > before
        assert not asked_for_title(c)


@pytest.mark.parametrize(
    ("when", "size", "server", "wanted"),
    [
        ("auto", titles.SMALLEST, "", True),
        ("auto", titles.SMALLEST - 1, "", False),
        ("auto", titles.SMALLEST, "http://elsewhere", False),
        ("on", 1, "", True),
        ("off", titles.SMALLEST, "", False),
    ],
)
async def test_which_models_name_chats_by_themselves(chat, monkeypatch, when, size, server, wanted):
    monkeypatch.setattr(titles, "IDLE", 3600)
    engine = FakeEngine([Script("They hunt."), Script("Owls at night")])
    engine.info = dataclasses.replace(engine.info, target_bytes=size)
    engine.server = server
    async with chat(engine=engine, titles=when) as c:
        await c.ask("What do owls do?")
        assert c.session.replies.titles._wants(c.session.chat) is wanted


async def test_a_title_is_made_on_request_in_place_of_any(chat):
    async with chat(Script("They hunt."), Script('"Owls at night."')) as c:
        await c.ask("What do owls do?")
        await c.type("/title My owls")
        await c.type("/title")
        await c.sees("this chat is called Owls at night")
        assert title(c) == "Owls at night"


async def test_what_is_no_title_is_said_and_changes_nothing(chat):
    async with chat(Script("They hunt."), Script("?!")) as c:
        await c.type("/title")
        await c.sees("there is nothing to name yet")
        await c.ask("What do owls do?")
        await c.type("/title")
        await c.sees("the model wrote no title")
        assert title(c) == "What do owls do?"


async def test_a_title_is_saved_with_the_chat(chat, tmp_path):
    saver = Saver(tmp_path / "chats.db", interval=0.02)
    scripts = [Script("They hunt."), Script("Owls at night")]
    async with chat(*scripts, titles="on", recorder=ChatRecorder(saver)) as c:
        await c.ask("What do owls do?")
        await c.until(lambda: title(c) == "Owls at night")
        (listed,) = await c.session.chat.recorder.archive.chats()
        assert (listed.info.title, listed.info.named) == ("Owls at night", False)
        await c.pilot.press("ctrl+l")
        await c.sees("Owls at night")


async def test_a_chat_that_is_closed_while_its_title_is_made_keeps_the_one_it_had(chat, tmp_path):
    saver = Saver(tmp_path / "chats.db", interval=0.02)
    scripts = [Script("They hunt."), Script("Owls at night", hold_at=0)]
    async with chat(*scripts, recorder=ChatRecorder(saver)) as c:
        await c.ask("What do owls do?")
        closed = c.session.chat.recorder
        await c.type("/title")
        await c.until(lambda: c.engine.holding)
        c.session.close()
        await c.until(lambda: closed.info.id not in saver._chats)
        c.engine.go.set()
        await c.until(lambda: not c.session.replies.titles.busy)
        (listed,) = await closed.archive.chats()
        assert listed.info.title == closed.info.title == "What do owls do?"
        assert closed.info.id not in saver._chats


def test_a_title_costs_the_next_question_nothing_of_the_cache():
    """With the embedded pair: the title's request begins as the chat does."""

    def cached(*, with_title: bool) -> int:
        with Runtime.open(Options(threads=1)) as runtime:
            chat = [Message("user", "What is localspec?")]

            def ask(*more: Message, **changes: object):
                request = ReplyRequest(
                    (*chat, *more), sampling=Sampling(temperature=0), max_tokens=24, **changes
                )
                *_, last = runtime.submit(request)
                assert isinstance(last, Finished)
                return last.reply

            chat.append(Message("assistant", ask().text))
            if with_title:
                named = ask(Message("user", titles.ASK), grammar=titles._FORM, drop_oldest=False)
                assert named.stats.cached_tokens > 0
                assert titles._cut(named.text)
            chat.append(Message("user", "How fast is it?"))
            return ask().stats.cached_tokens

    assert cached(with_title=True) >= cached(with_title=False) > 0
