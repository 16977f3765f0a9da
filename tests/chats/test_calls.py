"""What a model is told of a chat, and of calls where its engine takes none."""

import pytest
from replies import STATS

from localspec.chats.calls import calls_as_text, reply_messages
from localspec.chats.journal import Journal
from localspec.chats.values import Chat, ChatMessage, started
from localspec.core.events import Finished, Message, MessageCall, Reply, ReplyFormat, Token
from localspec.core.picture import Picture
from localspec.tools.toolbox import RequestTools
from localspec.tools.values import OfferedTool
from localspec.tools.written_calls import WrittenCalls


def test_calls_and_results_are_told_in_the_text():
    messages = (
        Message("user", "What is 1 + 2?"),
        Message("assistant", "I add.", calls=(MessageCall("c1", "add", '{"a": 1, "b": 2}'),)),
        Message("tool", "3", call_id="c1", name="add"),
        Message("assistant", "It is 3."),
    )
    assert [(one.role, one.content) for one in calls_as_text(messages)] == [
        ("user", "What is 1 + 2?"),
        ("assistant", 'I add.\n(call of add: {"a": 1, "b": 2})'),
        ("user", "(result of add)\n3"),
        ("assistant", "It is 3."),
    ]


def test_messages_that_are_joined_keep_their_pictures_at_their_places():
    cat, dog = Picture(b"cat", at=7, name="cat"), Picture(b"dog", name="dog")
    plan = Picture(b"map", at=9, name="map")
    messages = (
        Message("user", "before, after", pictures=(cat,)),
        Message("tool", "the map: here", name="draw", pictures=(plan,)),
        Message("user", "and this one", pictures=(dog,)),
    )
    (joined,) = calls_as_text(messages)
    told = [(one.name, joined.content[: one.at].split("\n")[-1]) for one in joined.pictures]
    assert told == [("cat", "before,"), ("map", "the map: "), ("dog", "")]
    assert joined.content[joined.pictures[2].at :] == "and this one"
    assert [one.data for one in joined.pictures] == [b"cat", b"map", b"dog"]


def test_the_thinking_of_replies_that_are_joined_is_kept():
    call = MessageCall("c1", "add", "{}")
    (told,) = calls_as_text(
        (
            Message("assistant", "One.", reasoning="first"),
            Message("assistant", "Two.", reasoning="second", calls=(call,)),
        )
    )
    assert (told.content, told.reasoning) == ("One.\n\nTwo.\n(call of add: {})", "first\n\nsecond")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([], "Why?\n\nAnd how?"),
        ([ChatMessage(2, 1, "assistant", "", 1.0, "failed")], "And how?"),
        ([ChatMessage(2, 1, "assistant", "", 1.0)], "And how?"),  # its writer was killed
    ],
)
def test_a_resumed_question_without_a_reply_is_told_in_one_message_with_the_next(ends, told):
    asked = (ChatMessage(1, None, "user", "Why?", 1.0), *ends)
    journal = Journal(resumed=Chat(started(), asked))
    assert [(m.role, m.content) for m in journal.messages("And how?")] == [("user", told)]


@pytest.mark.parametrize(("digits", "runs"), [(400, True), (401, False)])
def test_a_call_that_cannot_be_told_to_the_model_with_its_result_does_not_run(digits, runs):
    written = WrittenCalls(RequestTools.of([OfferedTool("", "add", "Adds.", {})]))
    written.take(ReplyFormat(tools="hermes"))
    call = f'<tool_call>\n{{"name": "add", "arguments": {{"a": {"7" * digits}}}}}\n</tool_call>'
    written.take(Token(0, call, "accepted", None))
    assert [one.arguments for one in written.calls] == [f'{{"a": {"7" * digits}}}']
    written.take(Finished(Reply(call, (0,), ("accepted",), "stop", STATS, seed=1)))
    assert written.act is runs
    told = reply_messages(written.text, written.calls, written.at)
    assert bool(told) is runs
