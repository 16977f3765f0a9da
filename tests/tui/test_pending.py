"""A reply that waits knows its place: what is shown when it begins changes nothing about it."""

from __future__ import annotations

import pytest
from fake_engine import LONG, FakeEngine, Script

from tui.session.conversation import Conversation
from tui.session.open_chat import SUMMARIZE, OpenChat
from tui.session.recorder import ChatRecorder


def opened(*, stopped=True):
    """Two questions, the second answered twice: on the branch that is shown the last reply was
    stopped.
    """
    conversation = Conversation()
    for question in ("one", "two"):
        conversation.say(question)
        reply = conversation.answer()
        reply.text, reply.end = f"reply to {question}", "stop"
    conversation.rewind(conversation.turns[-1])
    reply = conversation.answer()
    reply.text, reply.end = "begun", "interrupt" if stopped else "stop"
    return OpenChat(conversation, ChatRecorder())


def begun(chat):
    """The next reply begins: the texts before it, and its turn."""
    _, reply = chat.begin(chat.pending.take())
    return [turn.text for turn in chat.conversation.branch_to(reply)[:-1]], reply


def shown(chat):
    return [turn.text for turn in chat.conversation.turns]


def test_a_reply_to_be_continued_stays_as_it_is_where_an_earlier_question_is_changed():
    for at in (0, 2):
        chat = opened()
        last = chat.conversation.last
        assert chat.continue_reply()
        chat.edit(chat.conversation.turns[at], "changed")
        assert last.end == "interrupt"
        before, reply = begun(chat)
        assert before == [*["one", "reply to one"][:at], "changed"]
        assert reply.text == ""
        assert not chat.waits


def test_a_reply_to_be_continued_is_continued_whichever_branch_is_shown():
    chat = opened()
    last = chat.conversation.last
    assert chat.continue_reply()
    assert chat.branch(-1)
    before, reply = begun(chat)
    assert reply is last
    assert before == ["one", "reply to one", "two"]
    assert shown(chat)[-1] == "reply to two"


def test_another_answer_that_waits_goes_below_its_own_question():
    chat = opened()
    assert chat.regenerate()
    assert chat.branch(-1)
    before, _ = begun(chat)
    assert before == ["one", "reply to one", "two"]
    assert len(shown(chat)) == 4  # nothing was added to the branch that is shown


def test_a_changed_question_that_waits_keeps_its_parent():
    chat = opened()
    chat.edit(chat.conversation.turns[2], "changed")
    assert chat.branch(-1)
    before, _ = begun(chat)
    assert before == ["one", "reply to one", "changed"]
    assert "changed" not in shown(chat)


def test_messages_that_wait_are_asked_in_their_order_on_their_branch():
    chat = opened(stopped=False)
    chat.ask("three")
    assert chat.branch(-1)
    chat.ask("elsewhere")
    assert chat.branch(1)
    chat.ask("four")
    assert chat.queue == ["three", "elsewhere", "four"]
    assert begun(chat)[0][2:] == ["two", "begun", "three"]
    assert begun(chat)[0][2:] == ["two", "reply to two", "elsewhere"]
    before, _ = begun(chat)
    assert before[2:] == ["two", "begun", "three", "", "four"]


def test_messages_that_wait_follow_what_takes_the_place_of_the_reply_before_them():
    chat = opened()
    chat.ask("more")
    chat.edit(chat.conversation.turns[2], "changed")
    assert begun(chat)[0][2:] == ["changed"]
    assert begun(chat)[0][2:] == ["changed", "", "more"]
    chat = opened()
    chat.ask("more")
    assert chat.regenerate()
    assert begun(chat)[0][2:] == ["two"]
    assert begun(chat)[0][2:] == ["two", "", "more"]


def test_a_message_taken_back_leaves_the_others_in_their_place():
    chat = opened()
    chat.ask("three")
    assert chat.regenerate()
    assert chat.take_back() == "three"
    assert chat.take_back() is None
    chat.drop_pending()
    chat.ask("four")
    assert begun(chat)[0][2:] == ["two", "four"]


def test_a_changed_question_taken_back_is_edited_again_on_the_branch_that_it_left():
    for at in (0, 2):
        chat = opened(stopped=False)
        whole = shown(chat)
        question = chat.conversation.turns[at]
        chat.edit(question, "changed")
        assert (chat.fresh, chat.untouched) == (False, False)
        assert chat.take_back() == "changed"
        assert shown(chat) == whole
        assert chat.editing is question


@pytest.mark.parametrize("at", [0, 2])
def test_from_between_two_branches_the_one_before_is_shown(at):
    chat = opened()
    whole = shown(chat)
    chat.conversation.rewind(chat.conversation.turns[at])
    assert chat.conversation.place == (3, 3)
    assert not chat.branch(1)
    assert chat.branch(-1)
    assert shown(chat) == whole
    assert chat.conversation.place == (2, 2)


def test_continuing_twice_makes_one_reply():
    chat = opened()
    chat.conversation.rewind(chat.conversation.last)  # a question without a reply
    assert chat.continue_reply()
    assert chat.continue_reply()
    assert len(chat.pending) == 1


async def held(c):
    """A second question is answered on two branches; the last reply is held."""
    await c.ask("one")
    await c.pilot.press("f5")
    await c.until(lambda: c.session.chat.conversation.place == (2, 2))
    await c.until(lambda: c.replies and c.replies[-1].end)
    await c.ready()


async def test_a_reply_goes_on_where_another_branch_is_looked_at(chat):
    scripts = [Script("First."), Script(LONG, hold_at=2), Script("After.")]
    async with chat(*scripts) as c:
        await c.ask("Hello")
        await c.pilot.press("f5")
        await c.until(lambda: c.engine.holding)
        await c.pilot.press("alt+up")
        await c.sees("First.")
        await c.type("more")
        c.engine.go.set()
        await c.sees("After.")
        await c.ready()
        assert [t.text for t in c.session.chat.conversation.turns][1::2] == ["First.", "After."]
        await c.pilot.press("alt+down")
        await c.sees("The end.")
        assert c.replies[-1].end == "stop"


async def test_a_continuation_that_waits_for_servers_is_given_up_where_a_question_is_changed(chat):
    scripts = [Script("Whole."), Script(LONG, hold_at=1), Script("New."), Script("x")]
    async with chat(*scripts) as c:
        await c.ask("one")
        first = c.replies[0]
        await c.ask_and_hold("two")
        await c.pilot.press("escape")
        await c.until(lambda: c.replies[-1].end == "interrupt")
        await c.ready()
        c.session.tools.starting = True  # those of mcp.json are being started
        await c.pilot.press("f9")
        await c.until(lambda: c.session.chat.waits)
        c.session.edit(c.session.chat.conversation.turns[0], "changed")
        c.session.tools.starting = False
        c.session.replies.wake()
        await c.sees("New.")
        await c.ready()
        assert first.text == "Whole."
        assert [t.text for t in c.session.chat.conversation.turns] == ["changed", "New."]


@pytest.mark.parametrize("way", ["left", "changed", "taken back"])
async def test_only_the_reply_to_the_request_for_a_summary_is_one(chat, way):
    scripts = [Script("A1."), Script("A2."), Script(LONG, hold_at=1), Script("Ordinary.")]
    async with chat(*scripts) as c:
        await held(c)
        if way == "taken back":
            c.session.tools.starting = True
        assert c.session.compact()
        if way == "taken back":
            assert c.session.take_back() == SUMMARIZE
            c.session.tools.starting = False
        else:
            await c.until(lambda: c.engine.holding)
        if way == "left":
            await c.pilot.press("alt+up")
            await c.sees("A1.")
            c.session.stop()
        if way == "changed":
            c.session.edit(c.session.chat.conversation.turns[0], "changed")
            await c.until(lambda: c.replies and c.replies[-1].end)
        await c.ready()
        c.engine.scripts[:] = [Script("Ordinary.")]
        await c.ask("ordinary")
        assert c.replies[-1].text == "Ordinary."
        assert "summary" not in "".join(t.text for t in c.session.chat.conversation.turns)


async def test_a_summary_that_is_not_waited_for_begins_a_branch_that_is_not_shown(chat):
    scripts = [Script("A1."), Script("A2."), Script("Owls.", hold_at=0), Script("Understood.")]
    async with chat(*scripts) as c:
        await held(c)
        assert c.session.compact()
        await c.until(lambda: c.engine.holding)
        await c.pilot.press("alt+up")
        c.engine.go.set()
        await c.until(lambda: len(c.engine.asked) == 4)
        await c.ready()
        assert [t.text for t in c.session.chat.conversation.turns] == ["one", "A1."]
        assert "Owls." in c.engine.asked[3][-1].content
        assert c.session.chat.conversation.place[1] == 3


async def test_variants_are_looked_at_while_they_are_made(chat):
    scripts = [Script("One."), *(Script(LONG, hold_at=2) for _ in range(3))]
    engine = FakeEngine(scripts)
    async with chat(engine=engine) as c:
        await c.ask("Which?")
        await c.type("/variants 3")
        for number in (2, 3, 4):
            await c.until(lambda: c.engine.holding and len(c.engine.asked) == number)  # noqa: B023
            await c.pilot.press("alt+up")
            c.engine.go.set()
        await c.until(lambda: c.session.idle)
        replies = [t for t in c.session.chat.conversation.all_turns if t.role == "assistant"]
        assert [t.end for t in replies] == ["stop"] * 4


async def test_a_first_question_changed_while_the_model_loads_can_be_taken_back(chat):
    engine = FakeEngine([Script("First."), Script("New.")])
    async with chat(engine=engine) as c:
        await c.ask("one")
        c.session.tools.starting = True  # nothing is answered meanwhile
        c.session.edit(c.session.chat.conversation.turns[0], "changed")
        await c.sees("↳")
        await c.pilot.press("up")
        await c.sees("editing question 1 of 1")
        await c.sees("First.")
        assert c.composer.text == "changed"
        c.session.tools.starting = False
        await c.pilot.press("enter")
        await c.sees("New.")
        assert c.session.chat.conversation.place == (2, 2)
