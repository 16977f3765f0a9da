"""The outbox: first token at once, then few batches, order kept, nothing lost."""

import io
import math
import threading

import pytest

from localspec.core.events import (
    Finished,
    Loading,
    Notice,
    Reading,
    Reply,
    ReplyFormat,
    Round,
    Speculation,
    Stats,
    Token,
)
from localspec.core.reply_request import Tokenized
from localspec.core.values import Origin
from localspec.engine import protocol
from localspec.engine.messages import FailedEvent, LoadingEvent, ReplyEvents, TokenizedEvent
from localspec.engine.outbox import INTERVAL, Batches, Outbox

ON = Speculation("on")
ROUND = Round(0, 0, 0, 1, 0.0, 0.1, 0.1, "", 9, ON)
STATS = Stats(1, 0, 1, 1, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, ON)
FINISHED = Finished(Reply("", (), (), "stop", STATS, 1))
FAILED = FailedEvent(2, "EngineError", "x", 1)


class Sink(io.BytesIO):
    """Keeps the messages that were written."""

    def __init__(self):
        super().__init__()
        self.messages = []
        self.written = threading.Event()

    def write(self, lines):
        self.messages += map(protocol.decode_event, lines.splitlines())
        self.written.set()
        return len(lines)


def token(i):
    return Token(i, f"t{i}", Origin.PLAIN, None)


def flat(messages):
    """Events and messages that are none of a reply, in their order."""
    found = []
    for message in messages:
        found += message.events if isinstance(message, ReplyEvents) else [message]
    return found


def test_reading_the_prompt_does_not_hold_back_the_first_token():
    batches = Batches(interval=1.0)
    batches.add(1, Reading(0, 9, 0))
    batches.take(now=100.0)
    batches.add(1, Reading(9, 9, 0))
    batches.take(now=100.1)
    batches.add(1, token(0))
    assert batches.pause(now=100.2) == 0


def test_what_comes_before_a_first_token_waits_for_it_and_not_for_long():
    batches = Batches(interval=1.0)
    batches.add(1, ReplyFormat(("<think>",)))
    assert batches.pause(now=100.0) == pytest.approx(INTERVAL)
    batches.add(1, Reading(0, 9, 0))
    assert batches.pause(now=100.0 + INTERVAL) == 0
    assert len(batches.take(now=100.0 + INTERVAL)) == 1
    batches.add(1, Reading(9, 9, 0))
    assert batches.pause(now=100.5) == pytest.approx(INTERVAL)
    batches.add(1, token(0))
    assert batches.pause(now=100.5) == 0
    assert flat(batches.take(now=100.5)) == [Reading(9, 9, 0), token(0)]


def test_what_can_wait_does_not_put_off_tokens_that_are_due():
    batches = Batches(interval=1.0)
    batches.add(1, token(0))
    batches.take(now=100.0)
    batches.add(2, Reading(0, 9, 0))
    batches.add(1, token(1))
    assert batches.pause(now=100.9) <= 0.11


def test_the_first_token_of_each_reply_is_due_at_once_and_the_next_after_the_interval():
    batches = Batches(interval=1.0)
    batches.add(1, token(0))
    assert batches.pause(now=100.0) == 0
    batches.take(now=100.0)
    batches.add(1, ROUND)
    batches.add(1, token(1))
    assert batches.pause(now=100.25) == 0.75
    batches.add(2, token(2))
    assert batches.pause(now=100.25) == 0
    assert [m.id for m in batches.take(now=100.25)] == [1, 2]
    batches.add(2, token(3))
    assert batches.pause(now=100.5) == 0.75
    assert batches.pause(now=101.5) == 0


def test_a_message_without_tokens_does_not_put_off_those_that_wait():
    batches = Batches(interval=1.0)
    batches.add(1, token(0))
    batches.take(now=100.0)
    batches.add(2, Notice("x"))
    batches.take(now=100.9)
    batches.add(1, token(1))
    assert 0 < batches.pause(now=100.9) < 0.11


def test_tokens_that_another_message_takes_along_start_the_interval():
    batches = Batches(interval=1.0)
    batches.add(1, token(0))
    batches.take(now=100.0)
    batches.add(1, token(1))
    batches.send(FAILED)
    assert flat(batches.take(now=100.5)) == [token(1), FAILED]
    batches.add(1, token(2))
    assert batches.pause(now=100.5) == 1.0


def test_replies_that_have_ended_are_forgotten():
    batches = Batches(interval=1.0)
    for reply, end in (1, lambda: batches.add(1, FINISHED)), (2, lambda: batches.send(FAILED)):
        batches.add(reply, token(0))
        end()
        batches.take(now=100.0)
        batches.add(reply, token(1))  # a client may use an id again
        assert batches.pause(now=100.0) == 0


def test_other_events_do_not_overtake_tokens_and_do_not_wait():
    batches = Batches(interval=1.0)
    batches.add(1, token(0))
    batches.add(1, token(1))
    batches.add(1, Notice("x"))
    batches.add(2, token(2))
    batches.send(FAILED)
    batches.add(2, token(3))
    events = [token(0), token(1), Notice("x"), token(2), FAILED, token(3)]
    assert flat(batches.take(now=0.0)) == events
    assert batches.empty


def test_a_batch_belongs_to_one_reply_and_replies_in_turns_still_share_batches():
    batches = Batches(interval=1.0)
    for i in range(40):
        batches.add(i % 2, token(i))
    messages = batches.take(now=0.0)
    assert [message.id for message in messages] == [0, 1]
    for message in messages:
        assert [item.token % 2 for item in message.events] == [message.id] * 20


def test_the_outbox_writes_the_first_token_although_the_interval_is_endless():
    sink = Sink()
    outbox = Outbox(sink, interval=1e6)
    outbox.add(1, Reading(9, 9, 0))
    outbox.add(1, token(0))
    while token(0) not in flat(sink.messages):
        sink.written.clear()
        assert token(0) in flat(sink.messages) or sink.written.wait(100), "it was not sent"
    for i in range(1, 200):
        outbox.add(1, token(i))
    assert len(sink.messages) <= 3
    outbox.close(timeout=60)
    assert flat(sink.messages) == [Reading(9, 9, 0), *map(token, range(200))]


def test_tokens_are_written_when_the_interval_is_over():
    sink = Sink()
    outbox = Outbox(sink, interval=0.001)
    for i in range(20):
        outbox.add(1, token(i))
        while token(i) not in flat(sink.messages):
            sink.written.clear()
            assert token(i) in flat(sink.messages) or sink.written.wait(100), "it was not sent"
    outbox.close(timeout=60)


def test_a_broken_pipe_is_survived():
    class Broken(io.BytesIO):
        def write(self, line):
            raise BrokenPipeError

    outbox = Outbox(Broken())
    outbox.add(1, token(0))
    outbox.close(timeout=60)


def test_an_answer_that_no_client_would_take_is_an_error_to_who_asked():
    sink = Sink()
    outbox = Outbox(sink)
    outbox.send(TokenizedEvent(7, Tokenized("a" * protocol.MAX_LINE, (), ())))
    outbox.add(8, Notice("b"))
    outbox.close(timeout=60)
    failed, other = sink.messages
    assert (failed.id, failed.error) == (7, "UsageError")
    assert "too large to be sent: 16 MB" in failed.message
    assert other.id == 8


def test_a_value_that_cannot_be_written_ends_its_own_reply_and_no_other():
    sink = Sink()
    outbox = Outbox(sink)
    outbox.add(1, Token(5, "x", Origin.PLAIN, math.nan))
    outbox.add(2, token(6))
    outbox.close()
    (failed, other) = sink.messages
    assert (failed.id, failed.error) == (1, "DefectError")
    assert failed.message.startswith("the answer cannot be sent")
    assert other == ReplyEvents(2, (token(6),))


def test_an_engine_that_could_answer_nobody_ends(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr("os._exit", lambda code: ended.set())
    outbox = Outbox(Sink())
    outbox.send(LoadingEvent(Loading("x", math.nan)))
    assert ended.wait(10)
