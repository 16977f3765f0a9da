"""A reply of this session is made again from what the model was told then, which is not kept."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
from fake_engine import Script

from localspec.chats.calls import SavedCall, calls_as_text
from localspec.core.events import Message, Reply
from localspec.core.sampling_params import Sampling
from localspec.tools.values import OfferedTool
from tui.session.conversation import Conversation
from tui.session.recipes import How, Made
from tui.session.tool_shelf import ToolShelf


def held(start, kind):
    """Objects of a type that an object keeps alive, by itself or through others."""
    seen, ahead, found = {id(start)}, [start], []
    while ahead:
        for other in gc.get_referents(ahead.pop()):
            if id(other) not in seen and not isinstance(other, type):
                seen.add(id(other))
                ahead.append(other)
                found += [other] if isinstance(other, kind) else []
    return found


def asked(conversation, system=None, tools=None):
    """A question and its reply, as the session makes them; and what the model was told."""
    conversation.say(f"question {len(conversation.turns)}")
    turn = conversation.answer()
    messages = conversation.messages_to(turn)
    turn.text, turn.end = "Said.", "stop"
    reply = Reply("Said.", (), (), "stop", None, 1)
    turn.made = Made(reply, How(Sampling(), None, system), tools, hash(messages))
    return turn, messages


async def test_replies_keep_no_messages_so_a_chat_grows_with_its_replies_and_not_their_square(chat):
    async with chat(*(Script(f"{n}.") for n in range(3)), system="Be kind") as c:
        for n in range(3):
            await c.ask(f"question {n}")
        conversation = c.session.chat.conversation
        assert [conversation.recipe_of(t).messages for t in c.replies] == c.engine.asked
        assert not held(conversation.all_turns, Message)


def test_what_a_model_was_told_is_told_again_whatever_system_message_and_branch_came_since():
    conversation = Conversation("Be kind")
    first, told = asked(conversation, "Be kind")
    second, told_then = asked(conversation, "Be kind", "tools")
    conversation.system = "Be brief"
    conversation.rewind(second)
    asked(conversation, "Be brief")
    recipes = conversation.recipe_of(first), conversation.recipe_of(second)
    assert [recipe.messages for recipe in recipes] == [told, told_then]
    assert [recipe.tools for recipe in recipes] == [None, "tools"]


@pytest.mark.parametrize("part", ["question", "reply"])
def test_a_reply_is_not_made_again_once_a_message_before_it_has_become_another(part):
    conversation = Conversation()
    asked(conversation)
    reply, _ = asked(conversation)
    assert conversation.recipe_of(reply) is not None
    conversation.turns[part == "reply"].text += " and more, from another window"
    assert conversation.recipe_of(reply) is None


def test_a_reply_of_a_model_that_was_told_of_calls_in_words_is_made_again_so():
    conversation = Conversation()
    calling, _ = asked(conversation)
    calling.calls, calling.calls_at = [SavedCall("1", "read", "{}", "", "done", "a file")], 5
    answer = conversation.follow(calling, "assistant")
    told = calls_as_text(conversation.messages_to(answer))
    assert told != conversation.messages_to(answer)
    reply = Reply("Read.", (), (), "stop", None, 1)
    answer.text, answer.end = "Read.", "stop"
    answer.made = Made(reply, How(Sampling(), None, None), None, hash(told))
    assert conversation.recipe_of(answer).messages == told


def test_replies_with_the_same_tools_share_one_text_of_them():
    shelf, tools = ToolShelf(), [OfferedTool("maths", "add", "Add two numbers.", {})]
    shelf.toolbox = SimpleNamespace(offered=tools)
    first = shelf.request()
    shelf.toolbox = SimpleNamespace(offered=[OfferedTool("maths", "add", "Add two numbers.", {})])
    assert shelf.request() is first
    shelf.only = ()
    assert shelf.request() is None
    shelf.only = None
    shelf.toolbox.offered[0] = OfferedTool("maths", "add", "Add numbers.", {})
    assert "Add numbers." in shelf.request().text
