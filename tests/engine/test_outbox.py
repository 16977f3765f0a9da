"""The outbox: first token at once, then few batches, order kept, nothing lost."""

import io
import time

from localspec.core.events import Notice, Token
from localspec.core.values import Origin
from localspec.engine import protocol
from localspec.engine.events import FailedEvent
from localspec.engine.outbox import INTERVAL, Outbox


class Sink(io.BytesIO):
    """Remembers when each event was written."""

    def __init__(self):
        super().__init__()
        self.events = []

    def write(self, line):
        self.events.append((time.monotonic(), protocol.decode_event(line)))
        return len(line)


def token(i):
    return Token(i, f"t{i}", Origin.PLAIN, None)


def test_tokens_share_batches_in_order_and_none_is_lost():
    sink = Sink()
    outbox = Outbox(sink)
    outbox.add(1, token(0))
    end = time.monotonic() + 30
    while not sink.events:  # the first does not wait for company
        assert time.monotonic() < end, "it was not sent"
        time.sleep(0.001)
    started = time.monotonic()
    for i in range(1, 200):
        outbox.add(1, token(i))
        time.sleep(0.0005)
    outbox.close()
    seconds = time.monotonic() - started
    items = [item for _, event in sink.events for item in event.events]
    assert items == [token(i) for i in range(200)]
    assert len(sink.events) <= seconds / INTERVAL + 3
    assert sink.events[0][1].events == (token(0),)


def test_other_events_do_not_overtake_tokens_and_do_not_wait():
    sink, failed = Sink(), FailedEvent(2, "EngineError", "x", 1)
    outbox = Outbox(sink)
    outbox.add(1, token(0))
    outbox.add(1, token(1))
    outbox.add(1, Notice("x"))
    outbox.add(2, token(2))
    outbox.send(failed)
    outbox.add(2, token(3))
    outbox.close()
    flat = []
    for _, event in sink.events:
        flat += [event] if event == failed else event.events
    assert flat == [token(0), token(1), Notice("x"), token(2), failed, token(3)]


def test_a_batch_belongs_to_one_reply_and_replies_in_turns_still_share_batches():
    sink = Sink()
    outbox = Outbox(sink)
    with outbox._ready:  # as if all came within one interval
        for i in range(40):
            outbox._waiting.setdefault(i % 2, []).append(token(i))
    outbox.close()
    assert [event.id for _, event in sink.events] == [0, 1]
    for _, event in sink.events:
        assert [item.token % 2 for item in event.events] == [event.id] * 20


def test_a_broken_pipe_is_survived():
    class Broken(io.BytesIO):
        def write(self, line):
            raise BrokenPipeError

    outbox = Outbox(Broken())
    outbox.add(1, token(0))
    outbox.close()
